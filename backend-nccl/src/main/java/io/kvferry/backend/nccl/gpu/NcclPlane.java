// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.Placement;
import io.kvferry.backend.nccl.plane.PlaneClock;
import io.kvferry.backend.nccl.wire.Grant;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/// The data plane over NCCL: one [Link] for each peer, made at the first transfer and kept.
///
/// Blocks in host memory go by way of the GPU: gathered into pinned memory, copied to the device,
/// sent, copied back and scattered on the other side, with a CRC32C over each piece from the
/// sender's blocks to the receiver's. NCCL writes into buffers of the plane only; so a window can
/// be closed at any time, and its blocks are quiet from then on, whatever the communicator still
/// does.
///
/// Threading: any thread. A [GpuLoop] has the state and calls NCCL; copies run on virtual threads;
/// aborts, which may take long, on a thread each.
///
/// Where a call of NCCL or of the driver does not return, all transfers end with TIMEOUT after the
/// limit of a turn, the communicator that the call is for is aborted, and [#trouble] says so: until
/// the call returns nothing more is taken. No such call touches blocks.
public final class NcclPlane implements DataPlane {
    private static final Logger LOG = LoggerFactory.getLogger(NcclPlane.class);
    static final int MOST_LINKS = 256;
    private static final Duration CLOSE_LIMIT = Duration.ofSeconds(10);

    private final String name;
    private final Duration closeLimit;
    private final Gpu gpu;
    private final Intake intake;
    private final OpenTransfers transfers;
    private final Links links;
    private final Dialing dialing;

    /// @param slotBytes of a batch, and of each buffer: a link has at most two, one per direction
    /// @param setUp for a link to be made
    /// @param turn for one batch to be answered, and for one to be moved
    /// @param avoided after a link could not be made, found no room, or failed, [#refuses] says so
    ///   for this long
    /// @param channels of NCCL for each communicator, 0 for its default
    public record Limits(
            long slotBytes, Duration setUp, Duration turn, Duration avoided, int channels) {
        public static Limits standard(int channels) {
            return new Limits(
                    8 << 20,
                    Duration.ofSeconds(30),
                    Duration.ofSeconds(30),
                    Duration.ofSeconds(60),
                    channels);
        }
    }

    private NcclPlane(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits,
            Duration closeLimit,
            ThreadFactory dials,
            ThreadFactory copiers) {
        this.name = name;
        this.closeLimit = closeLimit;
        var clock = new PlaneClock(name + "-clock");
        var loop = new GpuLoop(name + "-gpu", new Duties());
        this.gpu =
                new Gpu(
                        name,
                        library,
                        driver,
                        limits,
                        loop,
                        clock,
                        copiers,
                        new AtomicReference<>());
        this.intake = new Intake(name, loop);
        this.transfers = new OpenTransfers(name);
        this.links = new Links(gpu, intake, transfers, this::dial);
        try {
            this.dialing = new Dialing(host, bindHost, gpu, intake, transfers, links, dials);
        } catch (RuntimeException | Error e) {
            clock.close();
            throw e;
        }
        boolean started = false;
        try {
            new HangWatch(gpu, intake, transfers, links).start();
            loop.start();
            started = true;
        } finally {
            if (!started) { // no memory for a thread
                dialing.close();
                clock.close();
            }
        }
    }

    /// Listens on a free port.
    ///
    /// @param host announced to peers
    /// @param bindHost address that the socket listens on
    /// @param driver closed with the plane. If a call of the driver or of NCCL hangs at that time,
    ///   it is closed after the call has returned and everything is freed
    /// @throws KvFerryException [ErrorCode#UNAVAILABLE]
    public static NcclPlane open(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits) {
        return open(name, host, bindHost, library, driver, limits, CLOSE_LIMIT);
    }

    /// @param closeLimit how long [#close] waits for the transfers to end, and for the GPU's thread
    static NcclPlane open(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits,
            Duration closeLimit) {
        var dials = Thread.ofVirtual().name(name + "-dial").factory();
        var copiers = Thread.ofVirtual().name(name + "-copy").factory();
        return new NcclPlane(
                name, host, bindHost, library, driver, limits, closeLimit, dials, copiers);
    }

    /// @param dials make a thread for each dial
    /// @param copiers make a thread for each copy between blocks and a buffer
    static NcclPlane open(
            String name,
            String host,
            String bindHost,
            NcclLibrary library,
            GpuDriver driver,
            Limits limits,
            ThreadFactory dials,
            ThreadFactory copiers) {
        return new NcclPlane(
                name, host, bindHost, library, driver, limits, CLOSE_LIMIT, dials, copiers);
    }

    /// Of the thread of the GPU. It outlives [#close] while a call does not return, and frees what
    /// there is when it does.
    private final class Duties implements GpuLoop.Duties {
        @Override
        public void begin() {
            gpu.driver().bind();
        }

        @Override
        public GpuLoop.Pace look() {
            return links.look();
        }

        @Override
        public boolean needed() {
            return links.holdResources();
        }

        @Override
        public void end() {
            gpu.driver().close();
        }
    }

    private void dial(Link link) {
        dialing.dial(link);
    }

    @Override
    public String kind() {
        return "nccl";
    }

    @Override
    public String address() {
        return dialing.address();
    }

    @Override
    public Optional<String> trouble() {
        return Optional.ofNullable(intake.hung()).map(Failure::message);
    }

    @Override
    public boolean refuses(String peer) {
        return intake.hung() != null || links.avoids(peer);
    }

    @Override
    public Window receive(Grant grant, Placement target, Deadline deadline, Consumer<Outcome> end) {
        var window = new NcclWindow(gpu, transfers, grant, target, end);
        transfers.add(window); // before the look whether it is closed: the loop runs until none is
        var refusal = intake.refusal();
        if (refusal != null) {
            window.finish(new Outcome.Failed(refusal));
            return window;
        }
        try {
            transfers.expose(window);
            gpu.post(() -> {
                window.limit(gpu.after(deadline.remaining(), () -> window.giveUp(late("filled"))));
                if (intake.closed()) {
                    window.giveUp(intake.closedFailure());
                }
            });
        } catch (RuntimeException | Error e) { // no memory: it does not begin
            transfers.forget(window);
            throw e;
        }
        var meanwhile = intake.hung(); // whoever set it may not have seen this one
        if (meanwhile != null) {
            transfers.hide(window);
            window.finish(new Outcome.Failed(meanwhile));
        }
        return window;
    }

    @Override
    public Sending send(
            String receiver,
            Grant grant,
            Placement source,
            Deadline deadline,
            Consumer<Outcome> end) {
        var target =
                PeerAddress.parse(receiver)
                        .orElseThrow(() ->
                                new KvFerryException(
                                        ErrorCode.PROTOCOL, "not an address: " + receiver));
        var sending = new NcclSending(gpu, transfers, grant, source, end);
        transfers.add(sending); // as for a window
        var refusal = intake.refusal();
        if (refusal != null) {
            sending.finish(new Outcome.Failed(refusal));
            return sending;
        }
        try {
            gpu.post(() -> begin(sending, target, deadline));
        } catch (RuntimeException | Error e) { // as above
            transfers.forget(sending);
            throw e;
        }
        var meanwhile = intake.hung();
        if (meanwhile != null) {
            sending.finish(new Outcome.Failed(meanwhile));
        }
        return sending;
    }

    private void begin(NcclSending sending, PeerAddress target, Deadline deadline) {
        if (sending.ended()) {
            return;
        }
        sending.limit(gpu.after(deadline.remaining(), () -> sending.giveUp(late("sent"))));
        if (intake.closed()) {
            sending.giveUp(intake.closedFailure());
            return;
        }
        var peer = target.toString();
        var link = links.find(peer);
        if (link != null) {
            link.sender().add(sending);
        } else if (links.full()) {
            links.avoid(peer);
            sending.giveUp(new Failure(ErrorCode.BACKPRESSURE, MOST_LINKS + " links are open"));
        } else {
            link = links.add(peer);
            link.sender().add(sending);
            dialing.dial(link);
        }
    }

    private Failure late(String what) {
        return new Failure(ErrorCode.TIMEOUT, name + ": not " + what + " within its time limit");
    }

    @Override
    public void close() {
        if (intake.closed()) { // by a call before this one, which may have left transfers
            checkQuiet();
            return;
        }
        intake.close();
        dialing.close();
        gpu.post(this::leave);
        var limit = Deadline.in(closeLimit);
        while (busy() && !limit.passed()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
        }
        transfers.end(intake.closedFailure());
        if (!transfers.isEmpty() || links.holdResources()) {
            LOG.warn("{}: not everything ended within {}", name, closeLimit);
        }
        gpu.clock().close();
        if (!gpu.loop().stop(intake.hung() == null ? closeLimit : Duration.ofSeconds(1))) {
            LOG.warn(
                    "{}: the thread of the GPU has not ended; it frees the rest when it can", name);
        }
        checkQuiet();
    }

    /// Whether something is left to wait for. While a call does not return that is transfers alone.
    private boolean busy() {
        return !transfers.isEmpty() || intake.hung() == null && links.holdResources();
    }

    private void checkQuiet() {
        if (!transfers.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, name + ": copies still use blocks after " + closeLimit);
        }
    }

    private void leave() {
        links.leaveAll(intake.closedFailure());
        transfers.giveUp(intake.closedFailure());
    }
}
