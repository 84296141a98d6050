package record;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Runs Debezium's embedded engine and writes down what it delivers, as the converters put it on the wire.
 *
 * Arguments: a file of properties, the file for the records, the file for their offsets. Both are appended to, one
 * line a record, and are flushed before Debezium is told that a record was handled. Ends when its standard input
 * ends; exit code 0, or 3 when the engine itself gave up, with its reason as the last line of the standard error.
 *
 * Properties that speak to this program, not to Debezium: `recorder.value.converter`, a converter's class;
 * `recorder.format=connect`, which takes the classes of `key.converter`, `value.converter` and `header.converter`, as
 * a Kafka Connect worker does, and writes what is no JSON as Base64; `recorder.places=true`, which writes the records'
 * partitions and timestamps; `recorder.counts=true`, which converts records as ever and then writes only an empty line
 * for each, flushed some twenty times a second: its time is the engine's own; `recorder.counters`, a file that gets what
 * Debezium's beans show when the standard input ends. As in the engine, `converter.*` configures all converters, `key.converter.*`, `value.converter.*` and `header.converter.*` one.
 */
public final class Recorder {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final ObjectMapper STRICT = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    private static final Method WITH_HEADERS = withHeaders();
    private static final Pattern STRING = Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*+\"");
    private static final Pattern SOLID = Pattern.compile("\\S*");

    private final Converter key;
    private final Converter value;
    private final HeaderConverter header;
    private final boolean any;
    private final boolean places;
    private final boolean counts;
    private final BufferedWriter records;
    private final BufferedWriter offsets;

    private Recorder(Properties properties, Path records, Path offsets) throws Exception {
        any = "connect".equals(properties.getProperty("recorder.format"));
        places = "true".equals(properties.getProperty("recorder.places"));
        counts = "true".equals(properties.getProperty("recorder.counts"));
        String json = JsonConverter.class.getName();
        String named = properties.getProperty("recorder.value.converter", json);
        key = (Converter) made(any ? properties.getProperty("key.converter", json) : json);
        value = (Converter) made(any ? properties.getProperty("value.converter", json) : named);
        header = (HeaderConverter) made(any ? properties.getProperty("header.converter", json) : json);
        key.configure(settings(properties, "key."), true);
        value.configure(settings(properties, "value."), false);
        Map<String, Object> forHeaders = settings(properties, "header.");
        forHeaders.put("converter.type", "header");
        header.configure(forHeaders);
        this.records = appender(records);
        this.offsets = appender(offsets);
        if (counts) {
            Thread flusher = new Thread(this::flush, "flusher");
            flusher.setDaemon(true);
            flusher.start();
        }
    }

    private void flush() {
        try {
            while (true) {
                Thread.sleep(50);
                synchronized (this) {
                    records.flush();
                }
            }
        }
        catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            properties.load(reader);
        }
        Recorder recorder = new Recorder(properties, Path.of(arguments[1]), Path.of(arguments[2]));
        Engine engine = Engine.of(properties, recorder::write);
        ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread made = new Thread(task, "engine");
            made.setDaemon(true);
            return made;
        });
        Thread watcher = new Thread(() -> {
            thread.execute(engine);
            thread.shutdown();
            try {
                thread.awaitTermination(1, TimeUnit.DAYS);
            }
            catch (InterruptedException e) {
                return;
            }
            end(engine.failure());
        }, "watcher");
        watcher.setDaemon(true);
        watcher.start();
        while (System.in.read() >= 0) {
            // Nothing is said on the standard input: only its end counts.
        }
        String counters = properties.getProperty("recorder.counters");
        if (counters != null) {
            Files.writeString(Path.of(counters), JSON.writeValueAsString(Beans.read()));
        }
        engine.close();
        watcher.join(60_000);
        end("the engine did not end within 60 seconds");
    }

    private static Object made(String name) throws ReflectiveOperationException {
        return Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static void end(String failure) {
        if (failure != null) {
            System.err.println("FAILED " + failure.replaceAll("\\s+", " "));
        }
        System.err.flush();
        Runtime.getRuntime().halt(failure == null ? 0 : 3);
    }

    private static BufferedWriter appender(Path path) throws IOException {
        return Files.newBufferedWriter(path, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** What is configured for all converters and, before that, for the one whose properties begin with `kind`. */
    private static Map<String, Object> settings(Properties properties, String kind) {
        Map<String, Object> found = new HashMap<>();
        for (String prefix : new String[]{ "converter.", kind + "converter." }) {
            for (String name : properties.stringPropertyNames()) {
                if (name.startsWith(prefix)) {
                    found.put(name.substring(prefix.length()), properties.getProperty(name));
                }
            }
        }
        return found;
    }

    private synchronized void write(SourceRecord record) {
        String topic = record.topic();
        if (counts) {
            count(record);
            return;
        }
        StringBuilder line = new StringBuilder("{\"topic\":").append(quoted(topic));
        if (places && record.kafkaPartition() != null) {
            line.append(",\"partition\":").append(record.kafkaPartition());
        }
        if (places && record.timestamp() != null) {
            line.append(",\"timestamp\":").append(record.timestamp());
        }
        // A worker writes the headers first, and keys and values see them.
        RecordHeaders headers = new RecordHeaders();
        for (Header one : record.headers()) {
            headers.add(one.key(), header.fromConnectHeader(topic, one.key(), one.schema(), one.value()));
        }
        line.append(",\"key\":").append(text(converted(key, topic, headers, record.keySchema(), record.key())));
        line.append(",\"value\":").append(text(converted(value, topic, headers, record.valueSchema(), record.value())));
        // Those that converters have added are among them.
        StringBuilder written = new StringBuilder();
        for (org.apache.kafka.common.header.Header one : headers) {
            written.append(written.length() == 0 ? "" : ",").append("{\"key\":").append(quoted(one.key()));
            written.append(",\"value\":").append(text(one.value())).append('}');
        }
        try {
            records.append(line.append(",\"headers\":[").append(written).append("]}\n"));
            records.flush();
            offsets.append("{\"partition\":").append(sorted(record.sourcePartition())).append(",\"offset\":")
                    .append(sorted(record.sourceOffset())).append("}\n");
            offsets.flush();
        }
        catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void count(SourceRecord record) {
        RecordHeaders none = new RecordHeaders();
        converted(key, record.topic(), none, record.keySchema(), record.key());
        converted(value, record.topic(), none, record.valueSchema(), record.value());
        try {
            records.append('\n');
        }
        catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** What a converter writes. Converters see the headers since Kafka Connect 2.4. */
    private static byte[] converted(Converter converter, String topic, Headers headers, Schema schema, Object value) {
        if (WITH_HEADERS == null) {
            return converter.fromConnectData(topic, schema, value);
        }
        try {
            return (byte[]) WITH_HEADERS.invoke(converter, topic, headers, schema, value);
        }
        catch (InvocationTargetException e) {
            throw e.getCause() instanceof RuntimeException ? (RuntimeException) e.getCause()
                    : new IllegalStateException(e.getCause());
        }
        catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Method withHeaders() {
        try {
            return Converter.class.getMethod("fromConnectData", String.class, Headers.class, Schema.class, Object.class);
        }
        catch (NoSuchMethodException e) {
            return null;
        }
    }

    /** What was written as it stands in the line; where it may be of any format, all but JSON as Base64. */
    private String text(byte[] written) {
        if (written == null) {
            return "null";
        }
        return any && !isJson(written) ? "{\"bytes\":\"" + Base64.getEncoder().encodeToString(written) + "\"}"
                : new String(written, StandardCharsets.UTF_8);
    }

    /** Whether it is JSON without blanks between its parts, as Kafka Connect writes it. */
    private static boolean isJson(byte[] written) {
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(written)).toString();
            return !STRICT.readTree(text).isMissingNode() && SOLID.matcher(STRING.matcher(text).replaceAll("")).matches();
        }
        catch (IOException e) {
            return false;
        }
    }

    private static String quoted(Object any) {
        try {
            return JSON.writeValueAsString(any);
        }
        catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String sorted(Map<String, ?> map) {
        return quoted(map == null ? null : new TreeMap<String, Object>(map));
    }
}
