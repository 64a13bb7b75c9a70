// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.mooncake;

import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.RegisteredMemory;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
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

    /// The child: `bytes key=value...`.
    public static void main(String[] args) throws IOException {
        Map<String, String> settings = new HashMap<>();
        for (String arg : List.of(args).subList(1, args.length)) {
            settings.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        }
        try (var engine = JavaTransferEngine.start(EngineConfig.from(settings));
                var plain = ServerSocketChannel.open()) {
            RegisteredMemory memory = engine.allocate(Long.parseLong(args[0]));
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

    Target(long bytes, String... settings) throws IOException {
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
                                String.valueOf(bytes)));
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
