package record;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;

import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Runs Debezium's embedded engine and writes down what it delivers, as the converters put it on the wire.
 *
 * Arguments: a file of properties, the file for the records, the file for their offsets. Both are appended to, one
 * line a record, and are flushed before Debezium is told that a record was handled. Ends when its standard input
 * ends; exit code 0, or 3 when the engine itself gave up, with its reason as the last line of the standard error.
 *
 * Properties that speak to this program, not to Debezium: `recorder.value.converter`, a converter's class. As in the
 * engine, `converter.*` configures all converters, `key.converter.*`, `value.converter.*` and `header.converter.*` one.
 */
public final class Recorder {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Converter key = new JsonConverter();
    private final Converter value;
    private final JsonConverter header = new JsonConverter();
    private final BufferedWriter records;
    private final BufferedWriter offsets;

    private Recorder(Properties properties, Path records, Path offsets) throws Exception {
        String name = (String) properties.getOrDefault("recorder.value.converter", JsonConverter.class.getName());
        value = (Converter) Class.forName(name).getDeclaredConstructor().newInstance();
        key.configure(settings(properties, "key."), true);
        value.configure(settings(properties, "value."), false);
        Map<String, Object> forHeaders = settings(properties, "header.");
        forHeaders.put("converter.type", "header");
        header.configure(forHeaders);
        this.records = appender(records);
        this.offsets = appender(offsets);
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
        engine.close();
        watcher.join(60_000);
        end("the engine did not end within 60 seconds");
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
        StringBuilder line = new StringBuilder("{\"topic\":").append(quoted(topic));
        line.append(",\"key\":").append(text(key.fromConnectData(topic, record.keySchema(), record.key())));
        line.append(",\"value\":").append(text(value.fromConnectData(topic, record.valueSchema(), record.value())));
        line.append(",\"headers\":[");
        String comma = "";
        for (Header one : record.headers()) {
            byte[] written = header.fromConnectHeader(topic, one.key(), one.schema(), one.value());
            line.append(comma).append("{\"key\":").append(quoted(one.key()));
            line.append(",\"value\":").append(text(written)).append('}');
            comma = ",";
        }
        try {
            records.append(line.append("]}\n"));
            records.flush();
            offsets.append("{\"partition\":").append(sorted(record.sourcePartition())).append(",\"offset\":")
                    .append(sorted(record.sourceOffset())).append("}\n");
            offsets.flush();
        }
        catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String text(byte[] written) {
        return written == null ? "null" : new String(written, StandardCharsets.UTF_8);
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
