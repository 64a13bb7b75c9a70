// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.RegisteredMemory;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/// The other side, in a JVM of its own: an engine, and a plain socket server for the copy loop and
/// the ping-pong.
final class Target implements AutoCloseable {
    /// Bytes of a request to the plain server.
    static final int HEAD = 16;

    private final Process process;
    final String segmentName;
    final long address;
    final int plainPort;

    /// The child: `bytes registered key=value...`.
    public static void main(String[] args) throws IOException {
        Map<String, String> settings = new HashMap<>();
        for (String arg : List.of(args).subList(2, args.length)) {
            settings.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        }
        try (var arena = Arena.ofShared();
                var engine = JavaTransferEngine.start(EngineConfig.from(settings));
                var plain = ServerSocketChannel.open()) {
            long bytes = Long.parseLong(args[0]);
            RegisteredMemory memory =
                    Boolean.parseBoolean(args[1])
                            ? engine.register(arena.allocate(bytes, 4096))
                            : engine.allocate(bytes);
            memory.memory().fill((byte) 1);
            plain.bind(new InetSocketAddress("127.0.0.1", 0));
            ByteBuffer buffer = memory.memory().asByteBuffer();
            Thread.ofPlatform().daemon().start(() -> serve(plain, buffer));
            System.out.println(
                    "@ "
                            + engine.info().segmentName()
                            + " "
                            + memory.address()
                            + " "
                            + plain.socket().getLocalPort());
            int end = System.in.read();
            if (end >= 0) {
                throw new IOException("nobody writes to this process");
            }
        }
    }

    private static void serve(ServerSocketChannel plain, ByteBuffer memory) {
        try {
            while (true) {
                SocketChannel channel = plain.accept();
                Thread.ofPlatform().daemon().start(() -> plainPeer(channel, memory.duplicate()));
            }
        } catch (IOException e) {
            System.err.println("plain server ends: " + e);
        }
    }

    /// Reads `u32 request, u32 reply, u64 offset` again and again: that many bytes into the memory
    /// there, that many out of it.
    private static void plainPeer(SocketChannel channel, ByteBuffer memory) {
        try (channel) {
            channel.socket().setTcpNoDelay(true);
            var head = ByteBuffer.allocateDirect(HEAD);
            while (Plain.readFully(channel, head.clear())) {
                int in = head.flip().getInt();
                int out = head.getInt();
                int offset = (int) head.getLong();
                if (!Plain.readFully(channel, memory.limit(offset + in).position(offset))) {
                    return;
                }
                Plain.writeFully(channel, memory.limit(offset + out).position(offset));
            }
        } catch (IOException e) {
            System.err.println("plain peer ends: " + e);
        }
    }

    /// @param registered whether the memory is the process's own, not the engine's
    Target(long bytes, boolean registered, String... settings) throws IOException {
        var command =
                new ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElse("java"),
                                "--enable-native-access=ALL-UNNAMED",
                                "-XX:+UseSerialGC",
                                "-XX:MaxDirectMemorySize=4g",
                                "-cp",
                                System.getProperty("java.class.path"),
                                Target.class.getName(),
                                String.valueOf(bytes),
                                String.valueOf(registered)));
        command.addAll(List.of(settings));
        process =
                new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        var out =
                new BufferedReader(
                        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String line = out.readLine();
        while (line != null && !line.startsWith("@ ")) {
            line = out.readLine();
        }
        if (line == null) {
            throw new IOException("the target process ended");
        }
        String[] words = line.split(" ");
        segmentName = words[1];
        address = Long.parseLong(words[2]);
        plainPort = Integer.parseInt(words[3]);
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
