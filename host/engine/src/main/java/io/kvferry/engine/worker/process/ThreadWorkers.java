// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.engine.worker.WorkerHost;
import io.kvferry.engine.worker.WorkerLauncher;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntFunction;

/// Runs each worker in a thread of this process, with the same frames as a worker process: for
/// tests of connectors and engines, which may start thousands, and for debuggers.
///
/// A killed worker neither receives nor sends anything more, even within a frame. Its thread ends
/// at its next frame; until then it may touch its own memory.
///
/// Threading: any thread.
public final class ThreadWorkers implements WorkerLauncher {
    private final IntFunction<WorkerHost> host;
    private final List<Worker> launched = new CopyOnWriteArrayList<>();

    /// @param host creates the host of a rank for each start
    public ThreadWorkers(IntFunction<WorkerHost> host) {
        this.host = host;
    }

    @Override
    public Link launch(int rank) {
        var worker = new Worker(rank, host.apply(rank));
        launched.removeIf(old -> !old.thread.isAlive());
        launched.add(worker);
        return worker;
    }

    /// The workers that run, in the order of their start.
    public List<Link> running() {
        return launched.stream()
                .filter(worker -> worker.thread.isAlive())
                .<Link>map(worker -> worker)
                .toList();
    }

    private static final class Worker implements Link {
        private final int rank;
        private final Pipe toWorker = new Pipe();
        private final Pipe fromWorker = new Pipe();
        private final Thread thread;

        Worker(int rank, WorkerHost host) {
            this.rank = rank;
            thread =
                    Thread.ofPlatform()
                            .daemon()
                            .name("kvferry-thread-worker-" + rank)
                            .start(() -> run(host));
        }

        private void run(WorkerHost host) {
            try {
                WorkerMain.serve(toWorker.in, fromWorker.out, host);
            } catch (IOException e) {
                // killed while it wrote
            } finally {
                kill();
            }
        }

        @Override
        public InputStream in() {
            return fromWorker.in;
        }

        @Override
        public OutputStream out() {
            return toWorker.out;
        }

        @Override
        public void kill() {
            toWorker.cut();
            fromWorker.cut();
        }

        @Override
        public boolean awaitEnd(Duration limit) throws InterruptedException {
            return thread.join(limit);
        }

        @Override
        public String toString() {
            return "thread worker " + rank;
        }
    }

    /// Bytes on their way from one thread to another.
    private static final class Pipe {
        private static final int MOST_BYTES = 1 << 20;

        private final ReentrantLock lock = new ReentrantLock();
        private final Condition changed = lock.newCondition();
        private final Deque<byte[]> chunks = new ArrayDeque<>();
        private int at;
        private int bytes;
        private boolean cut;
        final InputStream in = new In();
        final OutputStream out = new Out();

        void cut() {
            lock.lock();
            try {
                cut = true;
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        private void await() throws IOException {
            try {
                changed.await();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new InterruptedIOException("interrupted in a pipe");
            }
        }

        private int read(byte[] target, int from, int length) throws IOException {
            lock.lock();
            try {
                while (chunks.isEmpty()) {
                    if (cut) {
                        return -1;
                    }
                    await();
                }
                var chunk = chunks.getFirst();
                int count = Math.min(length, chunk.length - at);
                System.arraycopy(chunk, at, target, from, count);
                at += count;
                bytes -= count;
                if (at == chunk.length) {
                    chunks.removeFirst();
                    at = 0;
                }
                changed.signalAll();
                return count;
            } finally {
                lock.unlock();
            }
        }

        private void write(byte[] source, int from, int length) throws IOException {
            lock.lock();
            try {
                while (!cut && bytes > MOST_BYTES) {
                    await();
                }
                if (cut) {
                    throw new IOException("the worker is gone");
                }
                chunks.addLast(Arrays.copyOfRange(source, from, from + length));
                bytes += length;
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        private final class In extends InputStream {
            @Override
            public int read() throws IOException {
                var one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] target, int from, int length) throws IOException {
                Objects.checkFromIndexSize(from, length, target.length);
                return length == 0 ? 0 : Pipe.this.read(target, from, length);
            }
        }

        private final class Out extends OutputStream {
            @Override
            public void write(int value) throws IOException {
                write(new byte[] {(byte) value}, 0, 1);
            }

            @Override
            public void write(byte[] source, int from, int length) throws IOException {
                Objects.checkFromIndexSize(from, length, source.length);
                if (length > 0) {
                    Pipe.this.write(source, from, length);
                }
            }
        }
    }
}
