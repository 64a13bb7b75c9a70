// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import com.sun.management.OperatingSystemMXBean;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ClassLoadingMXBean;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;

/// The cost of this process so far, in quantities that depend little on the load of the machine.
///
/// @param cpuNanos processor time of all threads
/// @param compileMillis of it, that of the compilers
/// @param classes loaded
/// @param faults pages mapped by a fault that needed no input
public record ProcessCost(long cpuNanos, long compileMillis, long classes, long faults) {
    private static final OperatingSystemMXBean SYSTEM =
            ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    private static final ClassLoadingMXBean CLASSES = ManagementFactory.getClassLoadingMXBean();
    private static final CompilationMXBean COMPILER = ManagementFactory.getCompilationMXBean();
    private static final Path STAT = Path.of("/proc/self/stat");

    private static final Path TASKS = Path.of("/proc/self/task");
    private static final String WAITS = "voluntary_ctxt_switches:";

    /// Of proc(5), counted from the state, which follows the name of the process.
    private static final int MINOR_FAULTS = 7;

    public static ProcessCost now() {
        return new ProcessCost(
                cpuSoFar(),
                COMPILER.getTotalCompilationTime(),
                CLASSES.getTotalLoadedClassCount(),
                minorFaults());
    }

    /// Processor time of all threads so far.
    public static long cpuSoFar() {
        return CpuClock.own().orElseGet(SYSTEM::getProcessCpuTime);
    }

    /// Processor time of all threads of another process so far; 0 when it has ended.
    public static long cpuOf(ProcessHandle process) {
        return CpuClock.of(process.pid())
                .orElseGet(
                        () -> process.info().totalCpuDuration().map(Duration::toNanos).orElse(0L));
    }

    /// Number of voluntary context switches of the live threads; 0 when not available.
    public static long waitsOfThreads() {
        long sum = 0;
        try (var tasks = Files.list(TASKS)) {
            for (var task : tasks.toList()) {
                sum += waits(task.resolve("status"));
            }
        } catch (IOException e) {
            return 0; // not Linux
        }
        return sum;
    }

    private static long waits(Path status) {
        try (var lines = Files.lines(status)) {
            return lines.filter(line -> line.startsWith(WAITS))
                    .mapToLong(line -> Long.parseLong(line.substring(WAITS.length()).strip()))
                    .sum();
        } catch (IOException | UncheckedIOException e) {
            return 0; // the thread has ended
        }
    }

    private static long minorFaults() {
        try {
            var line = Files.readString(STAT);
            return Long.parseLong(
                    line.substring(line.lastIndexOf(')') + 2).split(" ", -1)[MINOR_FAULTS]);
        } catch (IOException e) {
            return 0; // not Linux
        }
    }

    /// What came on top of an earlier one.
    public ProcessCost since(ProcessCost earlier) {
        return new ProcessCost(
                cpuNanos - earlier.cpuNanos,
                compileMillis - earlier.compileMillis,
                classes - earlier.classes,
                faults - earlier.faults);
    }

    /// As one word.
    public String line() {
        return cpuNanos + "," + compileMillis + "," + classes + "," + faults;
    }

    public static ProcessCost of(String line) {
        var words = line.split(",");
        return new ProcessCost(
                Long.parseLong(words[0]),
                Long.parseLong(words[1]),
                Long.parseLong(words[2]),
                Long.parseLong(words[3]));
    }
}
