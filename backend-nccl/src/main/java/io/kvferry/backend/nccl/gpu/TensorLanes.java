// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.backend.nccl.plane.PlaneClock;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.bounded.ByteBudget;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.Stream;

/// The [TensorLane]s of one GPU, and the thread that makes all calls of NCCL for them.
///
/// Where a call of NCCL or of the driver does not return, the communicator that it is for is
/// aborted, every wait ends with TIMEOUT, and [#trouble] says so until the call returns.
///
/// Threading: any thread.
public final class TensorLanes implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(TensorLanes.class);
    static final long LEAST_BUFFER = 64 << 10;
    private static final int MOST_LANES = 256;
    private static final int LOOKS = 8;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final String name;
    private final NcclLibrary library;
    private final GpuDriver driver;
    private final Limits limits;
    private final GpuLoop loop;
    private final PlaneClock clock;
    private final ByteBudget room;

    /// The communicator that the loop's thread is in a call of.
    private final AtomicReference<@Nullable Communicator> calling = new AtomicReference<>();

    /// Lanes that are not freed.
    private final AtomicInteger open = new AtomicInteger();

    private volatile boolean closed;
    private volatile boolean hung;

    /// Of the loop.
    private TensorLane[] watched = {};

    /// @param setUp for a communicator to be made
    /// @param turn for one tensor
    /// @param mostBytes of all lanes' buffers together, on the device, and as many pinned
    /// @param channels of NCCL for each communicator, 0 for its default
    public record Limits(Duration setUp, Duration turn, long mostBytes, int channels) {
        public static Limits standard(int channels) {
            return new Limits(Duration.ofSeconds(30), Duration.ofSeconds(30), 2L << 30, channels);
        }
    }

    /// @param driver closed with the lanes; it stays open when this constructor fails
    public TensorLanes(String name, NcclLibrary library, GpuDriver driver, Limits limits) {
        this.name = name;
        this.library = library;
        this.driver = driver;
        this.limits = limits;
        this.room = new ByteBudget(limits.mostBytes());
        this.loop = new GpuLoop(name, new Duties());
        this.clock = new PlaneClock(name + "-clock");
        boolean started = false;
        try {
            clock.every(limits.turn().dividedBy(LOOKS), this::lookAfterLoop);
            loop.start(); // last: its thread closes the driver, which is the caller's until then
            started = true;
        } finally {
            if (!started) { // no memory for a thread
                clock.close();
            }
        }
    }

    /// What the thread of the GPU does by itself.
    private final class Duties implements GpuLoop.Duties {
        @Override
        public void begin() {
            driver.bind();
        }

        @Override
        public Pace look() {
            var pace = Pace.NONE;
            for (var lane : watched) { // replaced, not changed
                pace = pace.faster(lane.look());
            }
            return pace;
        }

        @Override
        public boolean needed() {
            return open.get() > 0;
        }

        @Override
        public void end() {
            driver.close();
        }
    }

    /// What moves the tensors, for logs.
    public String description() {
        return driver.name() + ", NCCL " + library.versionText();
    }

    /// Why nothing can be moved for the time being; empty when it can.
    public Optional<String> trouble() {
        return hung
                ? Optional.of(name + ": a call of NCCL or of the GPU's driver does not return")
                : Optional.empty();
    }

    /// A new id for a communicator.
    ///
    /// @throws KvFerryException [ErrorCode#IO], [ErrorCode#TIMEOUT], [ErrorCode#CLOSED]
    public byte[] uniqueId() {
        return await(call(library::uniqueId), limits.setUp(), name);
    }

    /// Begins to make a communicator with a peer, which must do the same.
    ///
    /// @param rank 0 for the side that made the id, else 1
    /// @return what its owner has to close; [TensorLane#awaitReady] comes first
    /// @throws KvFerryException [ErrorCode#BACKPRESSURE] for too many
    public TensorLane open(String peer, byte[] uniqueId, int rank) {
        if (open.incrementAndGet() > MOST_LANES) {
            open.decrementAndGet();
            throw new KvFerryException(
                    ErrorCode.BACKPRESSURE, name + " has " + MOST_LANES + " communicators");
        }
        var lane = new TensorLane(this, peer, Deadline.in(limits.setUp()));
        post(() -> {
            watched = Arrays.copyOf(watched, watched.length + 1);
            watched[watched.length - 1] = lane;
            if (closed) {
                lane.fail(closedFailure());
            } else {
                lane.begin(uniqueId, rank);
            }
        });
        return lane;
    }

    private Failure closedFailure() {
        return new Failure(ErrorCode.CLOSED, name + " is closed");
    }

    // ---- for lanes

    NcclLibrary library() {
        return library;
    }

    GpuDriver driver() {
        return driver;
    }

    AtomicReference<@Nullable Communicator> calling() {
        return calling;
    }

    ByteBudget room() {
        return room;
    }

    Duration setUp() {
        return limits.setUp();
    }

    Duration turn() {
        return limits.turn();
    }

    int channels() {
        return limits.channels();
    }

    void post(Runnable work) {
        loop.post(work);
    }

    /// Runs it on the loop.
    <T> CompletableFuture<T> call(Supplier<T> work) {
        var result = new CompletableFuture<T>();
        if (closed || loop.isFull()) {
            result.completeExceptionally(closedFailure().toException());
            return result;
        }
        post(() -> {
            try {
                result.complete(work.get());
            } catch (RuntimeException | Error e) {
                result.completeExceptionally(e);
            }
        });
        return result;
    }

    <T> T await(CompletableFuture<T> result, Duration limit, String what) {
        try {
            return result.get(limit.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof KvFerryException known
                    ? new KvFerryException(known.code(), String.valueOf(known.getMessage()), known)
                    : new KvFerryException(ErrorCode.INTERNAL, what + ": " + e.getCause(), e);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, what + ": NCCL did not end within " + limit, e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(ErrorCode.CANCELLED, what + ": interrupted", e);
        }
    }

    /// On the loop. Frees what a lane had, on a thread of its own: an abort may take long.
    void free(
            TensorLane lane,
            @Nullable Communicator communicator,
            GpuDriver.@Nullable Stream stream,
            GpuDriver.@Nullable Buffer buffer,
            long bytes) {
        watched = Stream.of(watched).filter(each -> each != lane).toArray(TensorLane[]::new);
        Runnable work =
                () -> {
                    try {
                        quietly(lane.peer(), driver::bind);
                        if (communicator != null) {
                            quietly(lane.peer(), communicator::abort);
                        }
                        if (stream != null) {
                            quietly(lane.peer(), stream::close);
                        }
                        if (buffer != null) {
                            quietly(lane.peer(), buffer::close);
                            room.give(bytes);
                        }
                    } finally {
                        open.decrementAndGet();
                        post(() -> {}); // the loop's thread may end
                    }
                };
        try {
            var _ = Thread.ofPlatform().name(name + "-free").daemon(true).start(work);
        } catch (OutOfMemoryError e) { // no thread can be created
            LOG.warn("{}: a lane is freed on the GPU's own thread: {}", name, e.toString());
            work.run();
        }
    }

    private void quietly(String peer, Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // the rest must be freed as well
            LOG.warn("{}: ending the communicator with {}: {}", name, peer, e.toString());
        }
    }

    /// On the clock. Nothing here waits for the loop or for NCCL.
    private void lookAfterLoop() {
        boolean stuck = loop.stuckFor().compareTo(limits.turn()) > 0;
        if (stuck && !hung) {
            hung = true;
            LOG.error("{}: a call of NCCL or of the GPU's driver does not return", name);
            var within = calling.get();
            if (within != null) {
                var _ =
                        Thread.ofPlatform()
                                .name(name + "-abort")
                                .daemon(true)
                                .start(() -> quietly("a peer", within::abort));
            }
        } else if (hung && !stuck) {
            hung = false;
            LOG.warn("{}: the call has returned", name);
        }
    }

    /// Ends everything with CLOSED. The owners of lanes close them; this waits for that, for a
    /// bounded time.
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        post(() -> {
            for (var lane : watched) {
                lane.fail(closedFailure());
            }
        });
        var limit = Deadline.in(hung ? Duration.ofSeconds(1) : CLOSE_LIMIT);
        while (open.get() > 0 && !limit.passed()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
        clock.close();
        if (!loop.stop(hung ? Duration.ofSeconds(1) : CLOSE_LIMIT)) {
            LOG.warn(
                    "{}: not everything has ended; the thread of the GPU goes on until it has",
                    name);
        }
    }
}
