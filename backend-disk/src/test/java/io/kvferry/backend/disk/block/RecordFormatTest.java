// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.block;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.toolkit.disk.AlignedStaging;
import io.kvferry.toolkit.disk.space.KeyDigest;
import io.kvferry.toolkit.memory.FullHeap;
import io.kvferry.toolkit.secret.FleetSecret;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

class RecordFormatTest {
    @TempDir Path root;

    /// A Mac of the JDK keeps the bytes of a block when it has no memory for the seal.
    @Test
    void sealsAndChecksTheNextBlockWhicheverAllocationFailed() throws Exception {
        Path secret = Files.writeString(root.resolve("secret"), "the secret of one fleet");
        assertThat(FullHeap.runSweep(root, 16, Child.class, secret.toString())).isPositive();
    }

    static final class Child implements FullHeap.Trial {
        private static final BlockKey KEY = BlockKey.of("k");
        private static final long BYTES = 5000;

        private final AlignedStaging staging = new AlignedStaging(64 << 10);
        private final List<MemorySegment> block = List.of(Arena.global().allocate(BYTES));
        private final List<MemorySegment> target = List.of(Arena.global().allocate(BYTES));
        private final RecordFormat format;
        private final RecordFormat other;

        private Child(FleetKey key) {
            format = new RecordFormat(KeyDigest.ofKey(new byte[0]), key);
            other = new RecordFormat(KeyDigest.ofKey(new byte[0]), key);
        }

        public static void main(String[] args) {
            try {
                var key = FleetKey.of(FleetSecret.read(Path.of(args[0])));
                FullHeap.sweepAndExit(16, 1 << 20, new Child(key));
            } catch (RuntimeException | Error e) {
                e.printStackTrace(System.out);
                System.exit(1);
            }
        }

        @Override
        public void prepare() {
            System.gc(); // else filling the heap may take a collection for every few bytes
        }

        @Override
        public boolean work() {
            format.encode(KEY, block, staging);
            return format.decode(staging, staging.memory().byteSize(), KEY, target)
                    == BlockResult.Done.LOADED;
        }

        @Override
        public void check(int left) {
            assertLoads(format, other, left);
            assertLoads(other, format, left);
        }

        private void assertLoads(RecordFormat writer, RecordFormat reader, int left) {
            long bytes = writer.encode(KEY, block, staging);
            assertThat(reader.decode(staging, bytes, KEY, target))
                    .as("%d bytes left", left)
                    .isEqualTo(BlockResult.Done.LOADED);
        }
    }
}
