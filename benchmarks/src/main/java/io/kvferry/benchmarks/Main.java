// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.ServiceLoader;

/// `java -jar benchmarks.jar NAME [--quick] ...`, or `jmh` and JMH's own arguments.
@Command(
        name = "benchmarks/run",
        description = "kvferry beside limits and peers, in turns; each prints the ratio.",
        footer = "jmh and JMH's own arguments run a JMH benchmark.",
        synopsisSubcommandLabel = "NAME [--quick] ...")
public final class Main implements Runnable {
    @Option(
            names = {"-h", "--help"},
            usageHelp = true,
            description = "Print the benchmarks.")
    boolean help;

    @Spec
    @SuppressWarnings("NullAway.Init") // picocli sets it
    private CommandSpec spec;

    private Main() {}

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("jmh")) {
            org.openjdk.jmh.Main.main(Arrays.copyOfRange(args, 1, args.length));
            return;
        }
        System.exit(commandLine().execute(args));
    }

    static CommandLine commandLine() {
        var root = new CommandLine(new Main());
        ServiceLoader.load(Benchmark.class).forEach(root::addSubcommand);
        return root.setCaseInsensitiveEnumValuesAllowed(true).setUsageHelpAutoWidth(true);
    }

    @Override
    public void run() {
        throw new ParameterException(spec.commandLine(), "which benchmark?");
    }

    /// What a number depends on, printed above every table.
    static String machine() {
        var os = ManagementFactory.getOperatingSystemMXBean();
        return Runtime.getRuntime().availableProcessors()
                + " cores, load "
                + os.getSystemLoadAverage()
                + ", "
                + System.getProperty("os.name")
                + " "
                + System.getProperty("os.version")
                + ", JDK "
                + Runtime.version();
    }
}
