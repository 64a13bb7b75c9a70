// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.kv.HeldDisk;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.tck.kv.KvConnectorContract;

import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The contract, run on the disk connector in each of its ways of working.
class DiskConnectorTckTest {
    abstract static class OnDisk extends KvConnectorContract {
        @TempDir Path folder;
        private Optional<HeldDisk> held = Optional.empty();

        abstract Map<String, Object> more();

        /// Once is enough: every copy of the plugin would take seconds for it.
        boolean rehearses() {
            return false;
        }

        @Override
        protected KvConnectorProvider provider() {
            return held.<KvConnectorProvider>map(disk -> disk)
                    .orElseGet(DiskConnectorProvider::new);
        }

        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<String, Object>(more());
            options.put("shared_storage_path", folder.resolve("kv").toString());
            options.put("reserve", 0);
            options.put("rehearsal", rehearses());
            options.put("suppression", "200ms"); // tests wait for a failed block to be found again
            return options;
        }

        @Override
        protected boolean damageStore() {
            List<Path> files = files();
            files.forEach(DiskConnectorTckTest::flipABit);
            return !files.isEmpty();
        }

        /// A file stands where the folder was: nothing can be opened or made below it any more.
        @Override
        protected boolean stopStore() {
            try {
                Files.move(folder.resolve("kv"), folder.resolve("gone"));
                Files.createFile(folder.resolve("kv"));
                return true;
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /// Synchronous loads are over before the next one can be refused.
        @Override
        protected Optional<Map<String, Object>> optionsWithBound(int transfers) {
            var options = new HashMap<>(options());
            if ("sync".equals(options.get("load"))) {
                return Optional.empty();
            }
            options.put("max_loads", transfers);
            held = Optional.of(new HeldDisk());
            return Optional.of(options);
        }

        @Override
        protected boolean stallStore() {
            held.ifPresent(HeldDisk::hold);
            return held.isPresent();
        }

        @Override
        protected void resumeStore() {
            held.ifPresent(HeldDisk::release);
        }

        @Override
        protected boolean forgetStore() {
            files().forEach(file -> assertThat(file.toFile().delete()).isTrue());
            return true;
        }

        final List<Path> files() {
            return BlockFiles.under(folder);
        }
    }

    static void flipABit(Path file) {
        try {
            byte[] bytes = Files.readAllBytes(file);
            bytes[4096 + 1] ^= 1;
            Files.write(file, bytes);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Nested
    class Async extends OnDisk {
        @Override
        Map<String, Object> more() {
            return Map.of();
        }

        @Override
        boolean rehearses() {
            return true;
        }
    }

    /// Blocks of a prompt share files, two by two.
    @Nested
    class Runs extends OnDisk {
        @Override
        Map<String, Object> more() {
            return Map.of("run_blocks", 2, "direct", "on");
        }
    }

    @Nested
    class Sync extends OnDisk {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "sync", "direct", "off", "durability", "data", "run_blocks", 3);
        }
    }

    @Nested
    class SaveOnly extends OnDisk {
        @Override
        Map<String, Object> more() {
            return Map.of("load", "none");
        }
    }
}
