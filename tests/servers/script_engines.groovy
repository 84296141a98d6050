// Evaluates conditions over rows in Groovy and in GraalJS: args[0] has both as JSON, args[1] gets the results, a line each.
import groovy.json.JsonSlurper
import groovy.json.JsonOutput
import org.graalvm.polyglot.Context
import org.graalvm.polyglot.proxy.ProxyObject

def typed(one) {
    if (one == null) return null
    def (kind, text) = one
    switch (kind) {
        case 'short': return Short.valueOf(text)
        case 'int': return Integer.valueOf(text)
        case 'long': return Long.valueOf(text)
        case 'float': return Float.valueOf(text)
        case 'double': return Double.valueOf(text)
        case 'decimal': return new BigDecimal(text)
        case 'boolean': return Boolean.valueOf(text)
    }
    return text
}

def told(found) {
    if (found == null) return ['null', '']
    if (found instanceof Boolean) return ['boolean', found.toString()]
    if (found instanceof CharSequence) return ['text', found.toString()]
    if (found instanceof Number) return ['number', found.toString()]
    return ['other', found.getClass().getName()]
}

def given = new JsonSlurper().parse(new File(args[0]))
def rows = given.rows.collect { row -> row.collectEntries { name, one -> [name, typed(one)] } }
def shell = new GroovyClassLoader()
def context = Context.newBuilder('js').allowAllAccess(true).build()
def out = new PrintWriter(new File(args[1]))
def compiled(shell, texts) {
    // closures of one class, since a class for each takes long
    def body = texts.collect { text -> "{ -> ${text.replaceFirst('^return ', '')}\n}" }.join(',\n')
    try { return (Class) shell.parseClass('[' + body + ']') } catch (Throwable error) { return null }
}
def groovies = given.cases.findAll { it[0] == 'groovy' }.collect { it[1] }
def results = [:]
def evaluate
evaluate = { texts ->
    def made = compiled(shell, texts)
    if (made == null) {
        if (texts.size() == 1) { results[texts[0]] = rows.collect { ['error', 'compile'] }; return }
        def half = texts.size().intdiv(2)
        evaluate(texts[0..<half]); evaluate(texts[half..-1]); return
    }
    def answers = texts.collect { [] }
    rows.each { row ->
        def script = (Script) made.getDeclaredConstructor().newInstance()
        script.setBinding(new Binding([value: row, topic: 's.public.data']))
        def closures = script.run()
        closures.eachWithIndex { closure, place ->
            try { answers[place] << told(closure.call()) }
            catch (Throwable error) { answers[place] << ['error', error.getClass().getSimpleName()] }
        }
    }
    texts.eachWithIndex { text, place -> results[text] = answers[place] }
}
groovies.collate(40).each { evaluate(it) }
given.cases.each { language, text ->
    def found
    if (language == 'groovy') {
        found = results[text]
    } else {
        found = rows.collect { row ->
            try {
                context.getBindings('js').putMember('value', ProxyObject.fromMap(new HashMap(row)))
                context.getBindings('js').putMember('topic', 's.public.data')
                def value = context.eval('js', text)
                if (value.isNull()) return ['null', '']
                if (value.isBoolean()) return ['boolean', value.asBoolean().toString()]
                if (value.isString()) return ['text', value.asString()]
                if (value.isNumber()) return ['number', value.fitsInLong() ? value.asLong().toString() : value.asDouble().toString()]
                return ['other', value.toString()]
            } catch (Throwable error) { return ['error', error.getMessage() ?: error.getClass().getSimpleName()] }
        }
    }
    out.println(JsonOutput.toJson(found))
}
out.close()
