package record;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Properties;
import java.util.function.Consumer;

import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's embedded engine of any version, behind one face.
 *
 * Since 1.1 the engine is made through io.debezium.engine.DebeziumEngine; before, through its class itself. The names
 * are looked up at run time, so that one source compiles against all of them.
 */
final class Engine implements Runnable {
    private final Object engine;
    private final Class<?> face;
    private volatile String failure;

    private Engine(Properties properties, Consumer<SourceRecord> handler) throws ReflectiveOperationException {
        Class<?> format = find("io.debezium.engine.format.ChangeEventFormat");
        Object builder;
        Class<?> building;
        if (format != null) {
            face = Class.forName("io.debezium.engine.DebeziumEngine");
            building = Class.forName("io.debezium.engine.DebeziumEngine$Builder");
            Object connect = format.getMethod("of", Class.class).invoke(null, Class.forName("io.debezium.embedded.Connect"));
            builder = face.getMethod("create", format).invoke(null, connect);
            building.getMethod("using", Properties.class).invoke(builder, properties);
        }
        else {
            face = Class.forName("io.debezium.embedded.EmbeddedEngine");
            building = method(face, "create", 0).getReturnType();
            builder = method(face, "create", 0).invoke(null);
            Class<?> configuration = Class.forName("io.debezium.config.Configuration");
            Object from = configuration.getMethod("from", Properties.class).invoke(null, properties);
            building.getMethod("using", configuration).invoke(builder, from);
        }
        Class<?> change = format != null ? Class.forName("io.debezium.engine.DebeziumEngine$ChangeConsumer")
                : method(building, "notifying", "ChangeConsumer").getParameterTypes()[0];
        building.getMethod("notifying", change).invoke(builder, consumer(change, handler));
        Class<?> completion = method(building, "using", "CompletionCallback").getParameterTypes()[0];
        building.getMethod("using", completion).invoke(builder, callback(completion));
        engine = building.getMethod("build").invoke(builder);
    }

    static Engine of(Properties properties, Consumer<SourceRecord> handler) throws ReflectiveOperationException {
        return new Engine(properties, handler);
    }

    /** The engine's reason for having given up; null while it runs, and after an orderly end. */
    String failure() {
        return failure;
    }

    @Override
    public void run() {
        try {
            ((Runnable) engine).run();
        }
        catch (Throwable e) {
            failure = String.valueOf(e);
        }
    }

    void close() throws Exception {
        Method stop = find(engine.getClass(), "stop");
        if (stop != null) {
            stop.setAccessible(true);
            stop.invoke(engine);
        }
        else {
            ((AutoCloseable) engine).close();
        }
    }

    /** Takes the batches; a record counts as handled once `handler` returns. */
    private static Object consumer(Class<?> change, Consumer<SourceRecord> handler) {
        return proxy(change, (self, method, arguments) -> {
            if (!method.getName().equals("handleBatch")) {
                return plain(self, method, arguments);
            }
            Object committer = arguments[1];
            Method processed = null;
            Method finished = null;
            for (Method candidate : committer.getClass().getMethods()) {
                if (candidate.getName().equals("markProcessed") && candidate.getParameterCount() == 1 && !candidate.isBridge()) {
                    processed = candidate;
                }
                else if (candidate.getName().equals("markBatchFinished")) {
                    finished = candidate;
                }
            }
            processed.setAccessible(true);
            finished.setAccessible(true);
            try {
                for (Object event : (List<?>) arguments[0]) {
                    handler.accept(event instanceof SourceRecord ? (SourceRecord) event : record(event));
                    processed.invoke(committer, event);
                }
                finished.invoke(committer);
            }
            catch (InvocationTargetException e) {
                // The engine knows its own exceptions, an interruption above all.
                throw e.getCause();
            }
            return null;
        });
    }

    private static SourceRecord record(Object event) throws ReflectiveOperationException {
        Method record = Class.forName("io.debezium.engine.RecordChangeEvent").getMethod("record");
        return (SourceRecord) record.invoke(event);
    }

    private Object callback(Class<?> completion) {
        return proxy(completion, (self, method, arguments) -> {
            if (!method.getName().equals("handle")) {
                return plain(self, method, arguments);
            }
            boolean success = (Boolean) arguments[0];
            Throwable cause = (Throwable) arguments[2];
            if (!success) {
                StringBuilder text = new StringBuilder(String.valueOf(arguments[1]));
                for (Throwable at = cause; at != null; at = at.getCause()) {
                    text.append("; ").append(at);
                }
                failure = text.toString();
            }
            return null;
        });
    }

    private static Object proxy(Class<?> type, InvocationHandler handler) {
        return Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[]{ type }, handler);
    }

    /** A method that the interface itself answers, or one of Object's. */
    private static Object plain(Object self, Method method, Object[] arguments) throws Throwable {
        if (method.isDefault()) {
            return InvocationHandler.invokeDefault(self, method, arguments);
        }
        switch (method.getName()) {
            case "hashCode":
                return System.identityHashCode(self);
            case "equals":
                return self == arguments[0];
            case "toString":
                return "recorder";
            default:
                throw new UnsupportedOperationException(method.toString());
        }
    }

    private static Class<?> find(String name) {
        try {
            return Class.forName(name);
        }
        catch (ClassNotFoundException e) {
            return null;
        }
    }

    private static Method find(Class<?> type, String name) {
        try {
            return type.getMethod(name);
        }
        catch (NoSuchMethodException e) {
            return null;
        }
    }

    private static Method method(Class<?> type, String name, int parameters) throws NoSuchMethodException {
        for (Method candidate : type.getMethods()) {
            if (candidate.getName().equals(name) && candidate.getParameterCount() == parameters) {
                return candidate;
            }
        }
        throw new NoSuchMethodException(type.getName() + "." + name);
    }

    private static Method method(Class<?> type, String name, String parameter) throws NoSuchMethodException {
        for (Method candidate : type.getMethods()) {
            if (candidate.getName().equals(name) && candidate.getParameterCount() == 1
                    && candidate.getParameterTypes()[0].getSimpleName().equals(parameter)) {
                return candidate;
            }
        }
        throw new NoSuchMethodException(type.getName() + "." + name + "(" + parameter + ")");
    }
}
