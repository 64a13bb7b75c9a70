// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/// Runs in separate JVMs, because the JDK opens a socket for itself only with the first socket of a
/// JVM.
@EnabledOnOs(OS.LINUX)
class LeakCheckTest {
    @TempDir Path folder;

    @Test
    void theFirstConnectionOfAJvmLeavesNothingBehind() throws Exception {
        assertThat(run("close")).isEqualTo("clean");
    }

    @Test
    void aConnectionThatStaysOpenIsLeftBehind() throws Exception {
        assertThat(run("leave open")).contains("left behind", "socket:");
    }

    private String run(String what) throws IOException, InterruptedException {
        var out = folder.resolve("out");
        var process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-cp",
                                System.getProperty("java.class.path"),
                                Client.class.getName(),
                                what)
                        .redirectErrorStream(true)
                        .redirectOutput(out.toFile())
                        .start();
        try {
            assertThat(process.waitFor(60, TimeUnit.SECONDS)).as("ended").isTrue();
        } finally {
            process.destroyForcibly();
        }
        return Files.readString(out, StandardCharsets.UTF_8).strip();
    }

    /// A connector that speaks TCP to a server, in one connection.
    static final class Client {
        private Client() {}

        public static void main(String[] args) throws IOException {
            var before = LeakCheck.snapshot();
            var client = connected();
            if (args[0].equals("close")) {
                client.close();
            }
            System.out.println(verdict(before));
            client.close();
        }

        private static Socket connected() throws IOException {
            try (var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                var client = new Socket(server.getInetAddress(), server.getLocalPort());
                server.accept().close();
                return client;
            }
        }

        private static String verdict(LeakCheck before) {
            try {
                before.mustBeClean();
                return "clean";
            } catch (AssertionError e) {
                return String.valueOf(e.getMessage());
            }
        }
    }
}
