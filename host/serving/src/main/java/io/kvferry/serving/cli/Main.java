// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Spec;

import java.util.List;
import java.util.concurrent.Callable;

/// Entry point of the `kvferry` command.
@Command(
        name = "kvferry",
        description =
                "Moves KV-cache blocks and encoder outputs between inference engines on the JVM.",
        mixinStandardHelpOptions = true,
        versionProvider = Main.Version.class,
        exitCodeListHeading = "%nExit codes:%n",
        exitCodeList = {
            "0:done",
            "1:it ran, and the result is bad (demo: a token differs; doctor: something needed is missing; import, export: a prompt was not copied)",
            "2:the command line or a configuration is wrong",
            "3:it could not be done (input or output, a peer, the platform, a defect)",
            "130:interrupted",
        },
        subcommands = {
            ServeCommand.class,
            RouteCommand.class,
            PluginsCommand.class,
            DoctorCommand.class,
            MakeModelCommand.class,
            ExchangeCommand.Import.class,
            ExchangeCommand.Export.class,
        })
public final class Main implements Callable<Integer> {
    private static final Logger LOG = LoggerFactory.getLogger(Main.class);

    @Spec
    @SuppressWarnings("NullAway.Init") // set by picocli
    private CommandSpec spec;

    @Override
    public Integer call() {
        spec.commandLine().usage(System.out);
        return ExitCode.USAGE;
    }

    /// Runs the command line and ends the process.
    public static void main(String[] args) {
        System.exit(run(args));
    }

    static int run(String... args) {
        try (var contributed = ContributedCommands.find(List.of(args))) {
            var line = commandLine(contributed);
            contributed.problems().forEach(line.getErr()::println);
            line.getErr().flush();
            return line.execute(args);
        }
    }

    static CommandLine commandLine(ContributedCommands contributed) {
        var line = new CommandLine(new Main());
        contributed.addTo(line); // first: what is set below is set for every command
        return line.setExpandAtFiles(false) // @file belongs to --kv-transfer-config
                .setCaseInsensitiveEnumValuesAllowed(true)
                .setParameterExceptionHandler((e, _) -> refuse(e))
                .setExecutionExceptionHandler((e, command, _) -> report(e, command));
    }

    /// One line for a mistake on the command line; the list of options would push it off the
    /// screen.
    private static int refuse(CommandLine.ParameterException e) {
        var line = e.getCommandLine();
        var name = line.getCommandSpec().qualifiedName();
        var near =
                e instanceof CommandLine.UnmatchedArgumentException unmatched
                        ? near(unmatched)
                        : List.<String>of();
        line.getErr()
                .println(
                        name
                                + ": "
                                + e.getMessage()
                                + (near.isEmpty()
                                        ? ""
                                        : "; did you mean " + String.join(" or ", near) + "?")
                                + " ("
                                + name
                                + (line.getSubcommands().isEmpty()
                                        ? " --help lists the options)"
                                        : " --help lists the commands)"));
        line.getErr().flush();
        return ExitCode.USAGE;
    }

    private static List<String> near(CommandLine.UnmatchedArgumentException e) {
        var suggested = e.getSuggestions();
        if (!suggested.isEmpty() || !e.isUnknownOption()) {
            return suggested;
        }
        var known = List.copyOf(e.getCommandLine().getCommandSpec().optionsMap().keySet());
        return OptionSchema.nearest(e.getUnmatched().getFirst(), known).stream().toList();
    }

    /// The one place where an exception of a command becomes a line for people.
    private static int report(Exception e, CommandLine command) {
        if (e instanceof KvFerryException known) {
            command.getErr()
                    .println("kvferry " + command.getCommandName() + ": " + known.getMessage());
            LOG.debug("details", e);
            return ExitCode.of(known.code());
        }
        if (e instanceof InterruptedException) {
            command.getErr().println("kvferry " + command.getCommandName() + ": interrupted");
            return ExitCode.INTERRUPTED;
        }
        command.getErr().println("kvferry " + command.getCommandName() + ": " + e);
        LOG.error("a defect in kvferry", e);
        return ExitCode.FAILED;
    }

    /// The version from the jar's manifest.
    static final class Version implements CommandLine.IVersionProvider {
        @Override
        public String[] getVersion() {
            var version = Main.class.getPackage().getImplementationVersion();
            return new String[] {
                "kvferry " + (version == null ? "(built from source)" : version),
                "Java " + Runtime.version(),
            };
        }
    }
}
