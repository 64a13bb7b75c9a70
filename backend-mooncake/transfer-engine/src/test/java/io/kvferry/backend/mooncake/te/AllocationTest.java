// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// Heap bytes of a transfer in steady state, on both sides: so many for a transfer, none for a
/// range of it. Ranges that share a gathering write or a scattering read are the exception: the JDK
/// makes two objects (40 bytes) for each buffer of such a call. They are long ones, and few calls.
class AllocationTest {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final int REGIONS = 40;
    private static final int MANY = 800;

    enum Way {
        BATCHES,
        VERSION_2,
        CROSS_MEMORY
    }

    @ParameterizedTest
    @CsvSource({
        "READ,  BATCHES,      1000,  0",
        "WRITE, BATCHES,      1000,  0",
        "READ,  BATCHES,      40000, 200",
        "WRITE, BATCHES,      40000, 200",
        "READ,  VERSION_2,    1000,  0",
        "WRITE, VERSION_2,    40000, 200",
        "READ,  CROSS_MEMORY, 1000,  0",
        "WRITE, CROSS_MEMORY, 40000, 0"
    })
    void allocatesNothingForARange(Operation operation, Way way, int bytes, int jdk) {
        if (way == Way.CROSS_MEMORY) {
            CrossMemorySupport.assumeLinked();
        }
        var settings =
                Map.of(
                        "shared-memory",
                        String.valueOf(way == Way.CROSS_MEMORY),
                        "extension",
                        String.valueOf(way != Way.VERSION_2));
        try (var arena = Arena.ofShared();
                var here = JavaTransferEngine.start(EngineConfig.from(settings));
                var there = JavaTransferEngine.start(EngineConfig.from(settings))) {
            var near = new RegisteredMemory[REGIONS];
            var far = new RegisteredMemory[REGIONS];
            for (int i = 0; i < REGIONS; i++) {
                near[i] = here.allocate(bytes);
                far[i] = there.register(arena.allocate(bytes));
            }
            var few = new Ranges(REGIONS);
            var many = new Ranges(MANY);
            for (int i = 0; i < MANY; i++) {
                (i < REGIONS ? few : many)
                        .add(near[i % REGIONS].address(), far[i % REGIONS].address(), bytes);
            }
            String peer = there.info().segmentName();
            long least = Long.MAX_VALUE;
            // The lowest of many, for the JVM itself allocates now and then.
            for (int i = 0; i < 40; i++) {
                long cost = cost(here, operation, peer, many) - cost(here, operation, peer, few);
                if (i >= 20) {
                    least = Math.min(least, cost);
                }
            }
            // The smallest object has 16 bytes; the watchdog's look at a longer transfer costs some
            // hundred.
            assertThat(least).isLessThan((4L + jdk) * MANY);
        }
    }

    private static long cost(
            JavaTransferEngine engine, Operation operation, String peer, Ranges ranges) {
        long before = allocated();
        EngineOutcome outcome =
                engine.transfer(
                        new EngineRequest(
                                operation,
                                peer,
                                ranges,
                                Deadline.in(Duration.ofSeconds(30)),
                                "",
                                0,
                                0,
                                Optional.empty()));
        long after = allocated();
        assertThat(outcome).isInstanceOf(Completed.class);
        return after - before;
    }

    private static long allocated() {
        return THREADS.getTotalThreadAllocatedBytes();
    }
}
