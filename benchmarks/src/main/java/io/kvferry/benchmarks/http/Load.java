// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.http;

import io.kvferry.benchmarks.ProcessCost;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/// Clients that each keep one connection and ask for one stream after the other.
///
/// @param requests streams that came whole
/// @param cpuMicros processor time of the process for each of them, clients and servers together
/// @param waits times that one of its threads waited, for each of them
/// @param perSecond of them
/// @param p50Micros time of a whole stream
/// @param p99Micros the same
record Load(
        int requests,
        double perSecond,
        double p50Micros,
        double p99Micros,
        double cpuMicros,
        double waits) {
    private static final byte[] END = "\r\n0\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    private static final int TIMEOUT_MILLIS = 60_000;

    /// @param clients how many at a time
    static Load run(int port, byte[] request, int clients, Duration time)
            throws InterruptedException, ExecutionException {
        var connected = new CountDownLatch(clients);
        var took = new ArrayList<Future<long[]>>();
        long start = System.nanoTime();
        long cpu = ProcessCost.cpuSoFar();
        long waits = ProcessCost.waitsOfThreads();
        try (var threads = Executors.newVirtualThreadPerTaskExecutor()) {
            for (int i = 0; i < clients; i++) {
                took.add(threads.submit(() -> client(port, request, time, connected)));
            }
            connected.await();
            start = System.nanoTime();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        var all = new ArrayList<long[]>();
        for (var one : took) {
            all.add(one.get());
        }
        var nanos = all.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        return new Load(
                nanos.length,
                nanos.length / seconds,
                nanos[nanos.length / 2] / 1e3,
                nanos[(int) (nanos.length * 0.99)] / 1e3,
                (ProcessCost.cpuSoFar() - cpu) / 1e3 / nanos.length,
                (double) (ProcessCost.waitsOfThreads() - waits) / nanos.length);
    }

    private static long[] client(int port, byte[] request, Duration time, CountDownLatch connected)
            throws IOException, InterruptedException {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(TIMEOUT_MILLIS);
            connected.countDown();
            connected.await();
            long end = System.nanoTime() + time.toNanos();
            var took = new long[1024];
            int count = 0;
            while (System.nanoTime() < end) {
                long start = System.nanoTime();
                exchange(socket, request);
                if (count == took.length) {
                    took = Arrays.copyOf(took, 2 * count);
                }
                took[count++] = System.nanoTime() - start;
            }
            return Arrays.copyOf(took, count);
        }
    }

    /// Sends a request and reads the response to the end of its chunks.
    static byte[] exchange(Socket socket, byte[] request) throws IOException {
        socket.getOutputStream().write(request);
        var response = new ByteArrayOutputStream(4096);
        var buffer = new byte[16 << 10];
        byte[] soFar;
        do {
            int n = socket.getInputStream().read(buffer);
            if (n < 0) {
                throw new IOException(
                        "port "
                                + socket.getPort()
                                + " hung up after "
                                + response.size()
                                + " bytes: "
                                + response.toString(StandardCharsets.UTF_8));
            }
            response.write(buffer, 0, n);
            soFar = response.toByteArray();
        } while (!endsWith(soFar));
        if (soFar[9] != '2') {
            throw new IOException(new String(soFar, StandardCharsets.UTF_8));
        }
        return soFar;
    }

    private static boolean endsWith(byte[] bytes) {
        return bytes.length > END.length
                && Arrays.equals(
                        bytes, bytes.length - END.length, bytes.length, END, 0, END.length);
    }
}
