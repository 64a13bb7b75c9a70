// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.te.EngineOutcome.Completed;
import io.kvferry.backend.mooncake.te.EngineRequest.Operation;
import io.kvferry.spi.Deadline;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// How many writes a transfer of ranges of 64 KiB needs, as the kernel counts them: four ranges
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

    @ParameterizedTest
    @CsvSource({"WRITE, true, 20", "READ, true, 20", "WRITE, false, 52", "READ, false, 20"})
    void rangesShareWrites(Operation operation, boolean extension, long most) throws IOException {
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
            long least = Long.MAX_VALUE;
            for (int i = 0; i < 20; i++) { // others write too now and then
                long before = writes();
                assertThat(
                                here.transfer(
                                        new EngineRequest(
                                                operation,
                                                there.info().segmentName(),
                                                ranges,
                                                Deadline.in(Duration.ofSeconds(30)),
                                                "",
                                                0,
                                                0,
                                                Optional.empty())))
                        .isInstanceOf(Completed.class);
                least = Math.min(least, writes() - before);
            }
            // Four for the ranges, and a few for requests; without the extension a receipt for
            // each range of a WRITE where they arrive one by one.
            assertThat(least).isBetween(4L, most);
        }
    }
}
