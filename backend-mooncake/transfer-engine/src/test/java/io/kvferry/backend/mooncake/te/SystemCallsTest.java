// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/// How many writes a transfer of ranges of 64 KiB needs, as the kernel counts them: eight ranges
/// share one.
class SystemCallsTest {
    private static final Path COUNTS = Path.of("/proc/self/io");
    private static final int RANGES = 32;
    private static final int BYTES = 64 << 10;

    /// Writes of this process so far.
    private static long writes() throws IOException {
        try (var lines = Files.lines(COUNTS)) {
            return lines.filter(line -> line.startsWith("syscw:"))
                    .mapToLong(line -> Long.parseLong(line.substring(line.indexOf(' ') + 1)))
                    .sum();
        }
    }

    /// A virtual thread sends through the channel, whose calls Linux counts; it does not count
    /// those that only sockets have. What a server sends passes through the same lists, see
    /// WireOutputTest.
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void rangesShareWrites(boolean extension) throws Exception {
        Assumptions.assumeTrue(Files.isReadable(COUNTS), "counts by Linux's /proc");
        var settings = Map.of("shared-memory", "false", "extension", String.valueOf(extension));
        try (var here = JavaTransferEngine.start(EngineConfig.from(settings));
                var there = JavaTransferEngine.start(EngineConfig.from(settings))) {
            var near = here.allocate(2L * RANGES * BYTES);
            var far = there.allocate(2L * RANGES * BYTES);
            var ranges = new Ranges(RANGES);
            for (int i = 0; i < RANGES; i++) { // with gaps, so that they are not one range
                ranges.add(near.address() + 2L * i * BYTES, far.address() + 2L * i * BYTES, BYTES);
            }
            var least = new CompletableFuture<Long>();
            Thread.ofVirtual()
                    .start(() -> {
                        try {
                            least.complete(leastWrites(here, there, ranges));
                        } catch (Exception | Error e) {
                            least.completeExceptionally(e);
                        }
                    });
            // Four for the ranges, and a few for requests.
            assertThat(least.get(60, TimeUnit.SECONDS)).isBetween(4L, 20L);
        }
    }

    private static long leastWrites(TransferEngine here, TransferEngine there, Ranges ranges)
            throws IOException {
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 20; i++) { // others write too now and then
            long before = writes();
            var deadline = Deadline.in(Duration.ofSeconds(30));
            assertThat(
                            here.transfer(
                                    EngineRequest.write(
                                            there.info().segmentName(), ranges, deadline)))
                    .isInstanceOf(Completed.class);
            least = Math.min(least, writes() - before);
        }
        return least;
    }
}
