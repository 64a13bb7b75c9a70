// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Assumptions;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/// A tmpfs that is soon full, mounted on a folder until it is closed.
public final class SmallFileSystem implements AutoCloseable {
    private static final int PAGE = 4096;

    private final Path folder;

    private SmallFileSystem(Path folder) {
        this.folder = folder;
    }

    /// Skips the test where the mount is refused.
    ///
    /// @param limits mount options, such as `size=4m` or `nr_inodes=100`
    public static SmallFileSystem mount(Path folder, String limits) {
        Assumptions.assumeTrue(
                run(
                        "mount",
                        "-t",
                        "tmpfs",
                        "-o",
                        limits + ",mode=700",
                        "kvferry-test",
                        folder + ""),
                "mounting a small tmpfs was refused; run as root with CAP_SYS_ADMIN to include this");
        return new SmallFileSystem(folder);
    }

    /// Takes all room that is left, as another program would.
    public void fill(Path file) throws IOException {
        try (OutputStream out = Files.newOutputStream(file)) {
            while (true) {
                out.write(new byte[PAGE]);
            }
        } catch (IOException e) {
            if (Files.getFileStore(folder).getUsableSpace() > 0) {
                throw e;
            }
        }
    }

    @Override
    public void close() {
        assertThat(run("umount", folder.toString())).isTrue();
    }

    private static boolean run(String... command) {
        try {
            Process process =
                    new ProcessBuilder(List.of(command)).redirectErrorStream(true).start();
            return process.waitFor(20, TimeUnit.SECONDS) && process.exitValue() == 0;
        } catch (IOException _) {
            return false; // no such command here
        } catch (InterruptedException _) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
