// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.io.IOException;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.net.UnknownHostException;
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
    /// Those of the system.
    public static final HostNames SYSTEM = new HostNames(InetAddress::getAllByName);

    private static final int THREADS = 16;
    private static final int MOST_WAITING = 1024;
    private static final ThreadPoolExecutor LOOK_UPS = lookUps();

    private final Resolver resolver;

    /// Knows the addresses of a host, and takes the time it takes.
    @FunctionalInterface
    public interface Resolver {
        InetAddress[] addresses(String host) throws UnknownHostException;
    }

    public HostNames(Resolver resolver) {
        this.resolver = resolver;
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
    /// @throws KvFerryException [ErrorCode#BACKPRESSURE] when too many names are being looked up
    public InetAddress[] addresses(String host, Deadline deadline) throws IOException {
        return lookUp(host).await(deadline);
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
                throw new IOException("looking up " + host + " failed: " + e.getCause(), e);
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
            } finally {
                answer.cancel(false);
                LOOK_UPS.remove(answer);
            }
        }

        /// Ends [#await]; from any thread.
        public void cancel() {
            answer.cancel(false);
        }
    }
}
