// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.invoke.MethodHandle;
import java.util.OptionalLong;

/// CPU time of a process in nanoseconds, from `clock_gettime`, because the JDK and `/proc` report
/// it in steps of 10 ms.
///
/// Threading: any thread.
final class CpuClock {
    private static final MemoryLayout TIMESPEC = MemoryLayout.structLayout(JAVA_LONG, JAVA_LONG);
    private static final int OWN = 2; // CLOCK_PROCESS_CPUTIME_ID of linux/time.h
    private static final int CPUCLOCK_SCHED = 2; // of linux/posix-timers.h
    private static final @Nullable MethodHandle CLOCK_GETTIME = find();

    private CpuClock() {}

    @SuppressWarnings("restricted") // the one place that links it
    private static @Nullable MethodHandle find() {
        if (!System.getProperty("os.name").equals("Linux")) {
            return null;
        }
        var linker = Linker.nativeLinker();
        return linker.defaultLookup()
                .find("clock_gettime")
                .map(address ->
                        linker.downcallHandle(
                                address, FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS)))
                .orElse(null);
    }

    /// Of all threads of this process; empty where this is not Linux.
    static OptionalLong own() {
        return read(OWN);
    }

    /// Of all threads of another process; empty also when it has ended.
    static OptionalLong of(long pid) {
        return read((int) ~pid << 3 | CPUCLOCK_SCHED);
    }

    private static OptionalLong read(int clock) {
        var call = CLOCK_GETTIME;
        if (call == null) {
            return OptionalLong.empty();
        }
        try (var arena = Arena.ofConfined()) {
            var time = arena.allocate(TIMESPEC);
            if ((int) call.invokeExact(clock, time) != 0) {
                return OptionalLong.empty();
            }
            return OptionalLong.of(
                    time.get(JAVA_LONG, 0) * 1_000_000_000L
                            + time.get(JAVA_LONG, JAVA_LONG.byteSize()));
        } catch (Throwable e) {
            throw new AssertionError("clock_gettime does not throw", e);
        }
    }
}
