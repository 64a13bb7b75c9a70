// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.http.Json;
import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;

import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Model.PositionalParamSpec;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;

/// One command of a plugin, as the parser sees it: the option schema becomes long options, and what
/// the user typed becomes validated options again.
final class ContributedCommand implements Callable<Integer> {
    private static final String JSON = "--json";
    private static final String PLUGIN_FOLDER = "--plugin-folder";
    private static final String STDIN = "--stop-with-stdin";

    /// Time for a server to close after it was asked to stop.
    private static final Duration STOP_LIMIT = Duration.ofSeconds(20);

    private final CommandProvider provider;
    private final CommandSpec spec;

    private ContributedCommand(CommandProvider provider) {
        this.provider = provider;
        this.spec = CommandSpec.wrapWithoutInspection(this);
    }

    static CommandSpec spec(CommandProvider provider) {
        var command = new ContributedCommand(provider);
        command.declare();
        return command.spec;
    }

    private void declare() {
        spec.name(provider.name()).mixinStandardHelpOptions(true);
        spec.usageMessage().description(escaped(provider.description()));
        provider.options().options().forEach(option -> spec.addOption(declared(option)));
        spec.addOption(flag(JSON, "Print JSON."));
        spec.addOption(
                flag(
                        STDIN,
                        "Stop when standard input ends, e.g. because the parent process ended."));
        spec.addOption(
                OptionSpec.builder(PLUGIN_FOLDER, "--plugin-dir")
                        .type(String.class)
                        .paramLabel("FOLDER")
                        .description("More plugins: one sub-folder of jars each.")
                        .build());
        var arguments = provider.arguments();
        if (arguments.most() > 0) {
            boolean many = arguments.most() == Integer.MAX_VALUE;
            spec.addPositional(
                    PositionalParamSpec.builder()
                            .type(List.class)
                            .auxiliaryTypes(String.class)
                            .arity(arguments.least() + ".." + (many ? "*" : arguments.most()))
                            .paramLabel(arguments.label())
                            .description(escaped(arguments.description()))
                            .build());
            spec.parser().stopAtPositional(many);
        }
    }

    private static OptionSpec flag(String name, String description) {
        return OptionSpec.builder(name).type(boolean.class).description(description).build();
    }

    private static OptionSpec declared(Option option) {
        var dashed = "--" + option.name().replace('_', '-');
        var spelled = "--" + option.name(); // as Mooncake's own programs spell their flags
        var names = dashed.equals(spelled) ? new String[] {dashed} : new String[] {dashed, spelled};
        var built =
                OptionSpec.builder(names)
                        .required(option.required())
                        .paramLabel(option.type().name().toLowerCase(Locale.ROOT))
                        .description(escaped(description(option)));
        return switch (option.type()) {
            case BOOLEAN -> built.type(String.class).arity("0..1").fallbackValue("true").build();
            case STRING_LIST ->
                    built.type(List.class).auxiliaryTypes(String.class).splitRegex(",").build();
            default -> built.type(String.class).build();
        };
    }

    private static String description(Option option) {
        var text = new StringBuilder(option.description());
        if (!option.choices().isEmpty()) {
            text.append("; one of ").append(String.join(", ", option.choices()));
        }
        option.defaultText()
                .filter(value -> !value.isEmpty() && !option.secret())
                .ifPresent(value -> text.append(" (default: ").append(value).append(')'));
        return text.append('.').toString();
    }

    /// Descriptions are format strings to the parser.
    private static String escaped(String text) {
        return text.replace("%", "%%");
    }

    @Override
    public Integer call() throws InterruptedException {
        if (provider.availability() instanceof Availability.Unavailable(var reason, var remedy)) {
            throw new KvFerryException(ErrorCode.UNAVAILABLE, reason + ". " + remedy);
        }
        var result = spec.commandLine().getParseResult();
        var given = new LinkedHashMap<String, Object>();
        for (var option : provider.options().options()) {
            Object typed = result.matchedOptionValue("--" + option.name().replace('_', '-'), null);
            if (typed != null) {
                given.put(option.name(), value(option, typed));
            }
        }
        var options = provider.options().read("options", given);
        List<String> arguments = result.matchedPositionalValue(0, List.of());
        check(arguments.size());
        try (var running = new Running(options, arguments)) {
            return provider.run(running);
        }
    }

    /// The parser lets an empty list pass.
    private void check(int count) {
        var allowed = provider.arguments();
        if (count < allowed.least() || count > allowed.most()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "expected "
                            + (allowed.least() == allowed.most()
                                    ? allowed.least()
                                    : "at least " + allowed.least())
                            + " "
                            + allowed.label()
                            + " ("
                            + allowed.description()
                            + "), got "
                            + count);
        }
    }

    /// The typed value as the JSON value that the option's schema reads.
    private static Object value(Option option, Object typed) {
        var text = typed.toString();
        try {
            return switch (option.type()) {
                case BOOLEAN ->
                        switch (text) {
                            case "true" -> Boolean.TRUE;
                            case "false" -> Boolean.FALSE;
                            default -> text;
                        };
                case INTEGER -> Long.valueOf(text);
                case NUMBER -> Double.valueOf(text);
                case JSON -> Json.toMap(Json.readObject(text.getBytes(StandardCharsets.UTF_8)));
                case STRING_LIST, STRING, BYTES, DURATION, PATH, CHOICE -> typed;
            };
        } catch (NumberFormatException e) {
            return text; // refused by the schema, in its words
        } catch (IllegalArgumentException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "--" + option.name() + ": " + e.getMessage(), e);
        }
    }

    /// The context that a running plugin command gets.
    private final class Running implements CommandProvider.Context, AutoCloseable {
        private final OptionValues options;
        private final List<String> arguments;
        private @Nullable Daemon daemon;

        Running(OptionValues options, List<String> arguments) {
            this.options = options;
            this.arguments = List.copyOf(arguments);
        }

        @Override
        public OptionValues options() {
            return options;
        }

        @Override
        public List<String> arguments() {
            return arguments;
        }

        @Override
        public PrintWriter out() {
            return line().getOut();
        }

        @Override
        public PrintWriter err() {
            return line().getErr();
        }

        @Override
        public boolean json() {
            return given(JSON);
        }

        @Override
        public Optional<Path> pluginFolder() {
            return Optional.ofNullable(
                            line().getParseResult()
                                    .<@Nullable String>matchedOptionValue(PLUGIN_FOLDER, null))
                    .map(Path::of);
        }

        @Override
        public void serveUntilStopped(String ready, Map<String, Object> facts) {
            daemon = new Daemon(json(), given(STDIN), STOP_LIMIT);
            daemon.announceAndWait(out(), ready, facts);
        }

        private CommandLine line() {
            return spec.commandLine();
        }

        private boolean given(String flag) {
            return line().getParseResult().hasMatchedOption(flag);
        }

        @Override
        public void close() {
            out().flush();
            err().flush();
            if (daemon != null) {
                daemon.close();
            }
        }
    }
}
