// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The addresses of hosts, within a deadline. Names are looked up on threads that all callers
/// share, because the resolver of the system knows neither limits nor interrupts.
///
/// Threading: any thread.
public final class HostNames {
    /// How long a start waits for the address of a host in its settings: longer than a resolver
    /// takes to turn to its second name server.
    private static final Duration START_LIMIT = Duration.ofSeconds(10);

    /// Those of the system.
    public static final HostNames SYSTEM = new HostNames(InetAddress::getAllByName);

    private static final int THREADS = 16;
    private static final int MOST_WAITING = 1024;
    private static final ThreadPoolExecutor LOOK_UPS = lookUps();

    private final Resolver resolver;
    private final Duration startLimit;

    /// Knows the addresses of a host, and takes the time it takes.
    @FunctionalInterface
    public interface Resolver {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    public HostNames(Resolver resolver) {
        this(resolver, START_LIMIT);
    }

    HostNames(Resolver resolver, Duration startLimit) {
        this.resolver = resolver;
        this.startLimit = startLimit;
    }

    private static ThreadPoolExecutor lookUps() {
        var threads =
                new ThreadPoolExecutor(
                        THREADS,
                        THREADS,
                        10,
                        TimeUnit.SECONDS,
                        new ArrayBlockingQueue<>(MOST_WAITING),
                        Thread.ofPlatform().daemon().name("kvferry-look-up-", 0).factory());
        threads.allowCoreThreadTimeOut(true);
        return threads;
    }

    /// At least one address.
    ///
    /// @throws SocketTimeoutException when there is no answer by then
    /// @throws UnknownHostException when the answer is that there is none
    /// @throws KvFerryException [ErrorCode#BACKPRESSURE] when too many names are being looked up,
    ///   [ErrorCode#NO_MEMORY] when no thread can be had for it
    public InetAddress[] addresses(String host, Deadline deadline) throws IOException {
        return lookUp(host).await(deadline);
    }

    /// As [#addresses(String, Deadline)], until it is cancelled.
    public InetAddress[] addresses(String host, Deadline deadline, Cancellation cancellation)
            throws IOException {
        var lookUp = lookUp(host);
        Closeable end = lookUp::cancel;
        cancellation.begin(end);
        try {
            return lookUp.await(deadline);
        } finally {
            cancellation.end(end);
        }
    }

    /// The address of a host in the settings of what starts, to listen on or to connect to.
    ///
    /// @return unresolved for a name that nobody knows
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when the name server does not answer,
    ///   [ErrorCode#IO] when the look-up fails, and as [#addresses]
    public InetSocketAddress socketAddress(String host, int port) {
        try {
            return new InetSocketAddress(addresses(host, Deadline.in(startLimit))[0], port);
        } catch (UnknownHostException e) {
            return InetSocketAddress.createUnresolved(host, port);
        } catch (SocketTimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT,
                    "the address of host "
                            + host
                            + " is not known: no answer of a name server within "
                            + startLimit.toMillis()
                            + " ms; give an address instead of a name, or mend the name service",
                    e);
        } catch (IOException e) {
            throw new KvFerryException(
                    ErrorCode.IO, "the address of host " + host + " is not known: " + e, e);
        }
    }

    /// A look-up that has not begun.
    public LookUp lookUp(String host) {
        return new LookUp(host);
    }

    /// The look-up of one host.
    public final class LookUp {
        private final String host;
        private final FutureTask<InetAddress[]> answer;

        private LookUp(String host) {
            this.host = host;
            this.answer = new FutureTask<>(() -> resolver.addresses(host));
        }

        /// As [HostNames#addresses]; by one thread.
        public InetAddress[] await(Deadline deadline) throws IOException {
            try {
                return new InetAddress[] {InetAddress.ofLiteral(host)};
            } catch (IllegalArgumentException _) {
                return awaitAnswer(deadline);
            }
        }

        private InetAddress[] awaitAnswer(Deadline deadline) throws IOException {
            try {
                LOOK_UPS.execute(answer);
                return answer.get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
            } catch (ExecutionException e) {
                throw failed(e);
            } catch (CancellationException e) {
                throw new IOException("given up", e);
            } catch (TimeoutException e) {
                var late = new SocketTimeoutException("looking up " + host);
                late.initCause(e);
                throw late;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while looking up " + host, e);
            } catch (RejectedExecutionException e) {
                throw new KvFerryException(
                        ErrorCode.BACKPRESSURE, "too many names are being looked up", e);
            } catch (OutOfMemoryError e) {
                throw new KvFerryException(
                        ErrorCode.NO_MEMORY, "no thread for looking up " + host + ": " + e, e);
            } finally {
                answer.cancel(false);
                LOOK_UPS.remove(answer);
            }
        }

        private IOException failed(ExecutionException e) {
            var text = "looking up " + host + " failed: " + e.getCause();
            if (!(e.getCause() instanceof UnknownHostException)) {
                return new IOException(text, e);
            }
            var unknown = new UnknownHostException(text);
            unknown.initCause(e);
            return unknown;
        }

        /// Ends [#await]; from any thread.
        public void cancel() {
            answer.cancel(false);
        }
    }
}
