// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// An engine in a JVM of its own, to be killed.
final class EngineProcess implements AutoCloseable {
    private final Process process;
    final String segmentName;
    final long address;

    /// The child: registers memory, says where, and waits for the end of its input.
    public static void main(String[] settings) throws IOException {
        Map<String, String> map = new HashMap<>();
        for (String setting : settings) {
            map.put(
                    setting.substring(0, setting.indexOf('=')),
                    setting.substring(setting.indexOf('=') + 1));
        }
        try (var engine = JavaTransferEngine.start(EngineConfig.from(map))) {
            RegisteredMemory memory = engine.allocate(256 << 20);
            System.out.println(engine.info().segmentName() + " " + memory.address());
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
        }
    }

    EngineProcess(String... settings) throws IOException {
        var command =
                new java.util.ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElse("java"),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-cp",
                                System.getProperty("java.class.path"),
                                EngineProcess.class.getName()));
        command.addAll(List.of(settings));
        process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        var out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = out.readLine();
        if (line == null) {
            throw new IOException("the child ended with " + process.onExit().join().exitValue());
        }
        segmentName = line.substring(0, line.indexOf(' '));
        address = Long.parseLong(line.substring(line.indexOf(' ') + 1));
    }

    /// kill -9
    void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
