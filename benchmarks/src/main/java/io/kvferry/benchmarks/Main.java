// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.ServiceLoader;

/// `java -jar benchmarks.jar NAME [--quick] ...`, or `jmh` and JMH's own arguments.
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("jmh")) {
            org.openjdk.jmh.Main.main(Arrays.copyOfRange(args, 1, args.length));
            return;
        }
        var benchmarks =
                ServiceLoader.load(Benchmark.class).stream()
                        .map(ServiceLoader.Provider::get)
                        .toList();
        for (var benchmark : benchmarks) {
            if (args.length > 0 && benchmark.name().equals(args[0])) {
                System.out.println("# " + benchmark.description());
                System.out.println("# " + machine());
                benchmark.run(List.of(args).subList(1, args.length));
                return;
            }
        }
        usage(benchmarks);
        System.exit(2);
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

    private static void usage(List<Benchmark> benchmarks) {
        System.err.println("usage: NAME [--quick] ... | jmh [JMH arguments]");
        benchmarks.forEach(b -> System.err.printf("  %-16s %s%n", b.name(), b.description()));
    }
}
