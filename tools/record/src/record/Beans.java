package record;

import java.lang.management.ManagementFactory;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;

import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.openmbean.CompositeData;
import javax.management.openmbean.TabularData;

/** What Debezium's beans show of a running engine. */
final class Beans {
    private Beans() {
    }

    /**
     * The attributes of each bean by the bean's `context`. Numbers, truth values and texts stand for themselves, a map
     * is an object; an attribute that cannot be read is left out, as an exporter leaves it out.
     */
    static Map<String, Map<String, Object>> read() throws JMException {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        Map<String, Map<String, Object>> found = new TreeMap<>();
        for (ObjectName name : server.queryNames(new ObjectName("debezium.*:*"), null)) {
            Map<String, Object> attributes = new TreeMap<>();
            for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                try {
                    Object value = shown(server.getAttribute(name, attribute.getName()));
                    if (value != null) {
                        attributes.put(attribute.getName(), value);
                    }
                }
                catch (JMException | RuntimeException e) {
                    // some attributes have no value before the first event
                    continue;
                }
            }
            found.put(String.valueOf(name.getKeyProperty("context")), attributes);
        }
        return found;
    }

    private static Object shown(Object value) {
        if (value instanceof Number || value instanceof Boolean || value instanceof String) {
            return value;
        }
        if (value instanceof String[]) {
            return value;
        }
        if (value instanceof TabularData) {
            return table(((TabularData) value).values());
        }
        return null;
    }

    /** A map, which a bean shows as rows of a key and a value. */
    private static Map<String, Object> table(Collection<?> rows) {
        Map<String, Object> found = new TreeMap<>();
        for (Object row : rows) {
            CompositeData pair = (CompositeData) row;
            found.put(String.valueOf(pair.get("key")), shown(pair.get("value")));
        }
        return found;
    }
}
