// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// What connects this plane with one other: a control connection and a communicator.
///
/// ```
/// DIALING  the first sending dials                  -> JOINING as rank 0
/// YIELDED  both dialed, and the peer's dial counts  -> JOINING as rank 1 when that comes, else DIALING
/// JOINING  both make the communicator               -> READY when both have
/// READY    transfers, in both directions            -> LEAVING when the plane closes
/// LEAVING  the communicator is being ended          -> OVER
/// OVER     failed or ended
/// ```
///
/// Each direction has one batch on its way at most: gathered into a buffer of this side, announced,
/// given a turn on the communicator, scattered from a buffer of the other side. Rank 0 gives the
/// turns.
///
/// Threading: confined to the loop.
final class Link {
    private static final Logger LOG = LoggerFactory.getLogger(Link.class);
    private static final Duration YIELD_LIMIT = Duration.ofSeconds(1);
    private static final Duration LEAVE_LIMIT = Duration.ofSeconds(2);

    private enum State {
        DIALING,
        YIELDED,
        JOINING,
        READY,
        LEAVING,
        OVER
    }

    private final NcclPlane plane;
    private final String peer;
    private final Map<Long, NcclSending> sendings = new LinkedHashMap<>();
    private final Map<Long, NcclWindow> windows = new HashMap<>();
    private State state = State.DIALING;
    private Deadline limit;
    private @Nullable LinkSocket socket;
    private @Nullable Communicator communicator;
    private GpuDriver.@Nullable Stream stream;
    private @Nullable Turns turns;
    private GpuDriver.@Nullable Buffer sendBuffer;
    private GpuDriver.@Nullable Buffer receiveBuffer;
    private boolean dialer;
    private boolean readyHere;
    private boolean readyThere;
    private long slotBytes;
    private long drawn;
    private long nextTurn;
    private int copies;
    private boolean abandoned;
    private LinkMessage.@Nullable PlaneId peerPlane;
    private long voidDials;

    /// The batch of this side, from the gathering of its blocks until its turn is over.
    private @Nullable Outgoing outgoing;

    /// The batch of the other side, from its announcement until it is scattered.
    private @Nullable Incoming incoming;

    /// Announced while the one before is being scattered.
    private LinkMessage.@Nullable Batch early;

    private static final class Outgoing {
        private final NcclSending sending;
        private List<Piece> pieces;
        private boolean announced;
        private boolean hasTurn;
        private Deadline answer = Deadline.in(Duration.ZERO);

        Outgoing(NcclSending sending, List<Piece> pieces) {
            this.sending = sending;
            this.pieces = pieces;
        }
    }

    private static final class Incoming {
        private final LinkMessage.Batch batch;
        private boolean hasTurn;

        Incoming(LinkMessage.Batch batch) {
            this.batch = batch;
        }
    }

    Link(NcclPlane plane, String peer) {
        this.plane = plane;
        this.peer = peer;
        this.limit = Deadline.in(plane.limits().setUp());
        this.slotBytes = plane.limits().slotBytes();
    }

    String peer() {
        return peer;
    }

    boolean dialing() {
        return state == State.DIALING;
    }

    boolean yielded() {
        return state == State.YIELDED;
    }

    /// A sending whose grant the peer knows, to be shown by the dialer.
    @Nullable NcclSending first() {
        return sendings.isEmpty() ? null : sendings.values().iterator().next();
    }

    void add(NcclSending sending) {
        sendings.put(drawn++, sending);
        advance();
    }

    // ---- set-up

    /// The peer's own dial counts. It may come to nothing, if its window closes meanwhile: after a
    /// while this side dials again.
    void yield() {
        state = State.YIELDED;
        limit = Deadline.in(YIELD_LIMIT);
    }

    /// Whether a dial of the peer was made before it took this side's.
    boolean outdates(LinkMessage.Hello hello) {
        return hello.plane().equals(peerPlane) && hello.number() <= voidDials;
    }

    /// The dial was welcomed: this side is rank 0.
    void dialed(LinkSocket connection, LinkMessage.Welcome welcome) {
        dialer = true;
        peerPlane = welcome.plane();
        voidDials = welcome.voidDials();
        join(connection, welcome.slotBytes());
        try {
            var id = plane.library().uniqueId();
            connection.send(new LinkMessage.Identity(id));
            begin(id);
        } catch (RuntimeException | Error e) { // as in look()
            fail(Failure.of(e));
        }
    }

    /// The peer dialed and was welcomed: this side is rank 1.
    void answered(LinkSocket connection, long peerSlotBytes) {
        dialer = false;
        join(connection, peerSlotBytes);
    }

    private void join(LinkSocket connection, long peerSlotBytes) {
        state = State.JOINING;
        limit = Deadline.in(plane.limits().setUp());
        socket = connection;
        slotBytes = Math.min(slotBytes, peerSlotBytes);
        connection.start(
                message ->
                        plane.post(() -> {
                            connection.heard();
                            hear(message);
                        }),
                failure -> {
                    plane.left(connection);
                    plane.post(() -> fail(failure));
                });
        plane.joined(connection);
    }

    private void begin(byte[] id) {
        communicator =
                Communicator.begin(
                        plane.library(),
                        id,
                        dialer ? 0 : 1,
                        plane.limits().channels(),
                        plane.calling());
        stream = plane.driver().openStream();
        turns = new Turns(communicator, stream, plane.limits().turn(), this::turnOver);
    }

    private void checkReady() {
        if (readyHere && readyThere && state == State.JOINING) {
            state = State.READY;
            LOG.info("nccl plane: linked with {} as rank {}", peer, dialer ? 0 : 1);
            advance();
        }
    }

    // ---- what the peer says

    private void hear(LinkMessage message) {
        if (state == State.OVER || state == State.LEAVING) {
            return;
        }
        try {
            switch (message) {
                case LinkMessage.Identity(var id) -> {
                    if (dialer || communicator != null || id.length != NcclLibrary.ID_BYTES) {
                        throw unexpected(message);
                    }
                    begin(id);
                }
                case LinkMessage.Ready() -> {
                    readyThere = true;
                    checkReady();
                }
                case LinkMessage.Open open -> open(open);
                case LinkMessage.Batch batch -> announced(batch);
                case LinkMessage.Accept() -> {
                    var own = outgoing;
                    if (!dialer || own == null || !own.announced || own.hasTurn) {
                        throw unexpected(message);
                    }
                    giveTurn(true);
                }
                case LinkMessage.Turn(var number, var dialerSends) -> {
                    if (dialer || number != nextTurn) {
                        throw unexpected(message);
                    }
                    nextTurn++;
                    takeTurn(!dialerSends);
                }
                case LinkMessage.End(var transfer, var bytes) -> {
                    var window = windows.get(transfer);
                    if (window != null) {
                        window.announce(bytes);
                        checkWindow(window);
                    }
                }
                case LinkMessage.Cancel(var transfer) -> {
                    var window = windows.get(transfer);
                    if (window != null) {
                        window.giveUp(new Failure(ErrorCode.PEER_LOST, "the sender has given up"));
                    }
                }
                case LinkMessage.Result(var transfer, var code) -> result(transfer, code);
                case LinkMessage.Hello _, LinkMessage.Welcome _ -> throw unexpected(message);
            }
        } catch (RuntimeException | Error e) { // whatever it was, transfers must be told
            fail(Failure.of(e));
        }
    }

    private static KvFerryException unexpected(LinkMessage message) {
        return LinkMessage.protocol(
                "the peer said " + message.getClass().getSimpleName() + " out of turn");
    }

    private void say(LinkMessage message) {
        Objects.requireNonNull(socket).send(message);
    }

    private void open(LinkMessage.Open open) {
        if (windows.containsKey(open.transfer()) || isAnnounced(open.transfer())) {
            throw unexpected(open); // a batch is checked against its window when it is announced
        }
        var window = plane.take(open.grant());
        if (window == null) {
            say(new LinkMessage.Result(open.transfer(), ErrorCode.NOT_FOUND.wire()));
            return;
        }
        window.adopt(this, open.transfer());
        windows.put(open.transfer(), window);
    }

    private boolean isAnnounced(long transfer) {
        return incoming != null && incoming.batch.transfer() == transfer
                || early != null && early.transfer() == transfer;
    }

    private void announced(LinkMessage.Batch batch) {
        if (state != State.READY || batch.bytes() > slotBytes || early != null) {
            throw unexpected(batch);
        }
        if (incoming != null) {
            early = batch;
            return;
        }
        incoming = new Incoming(batch);
        if (receiveBuffer == null) {
            receiveBuffer = plane.driver().allocate(plane.limits().slotBytes());
        }
        var window = windows.get(batch.transfer());
        if (window != null && window.open()) {
            var misfit = window.announced() ? late() : window.misfit(batch.pieces());
            if (misfit != null) {
                window.giveUp(misfit);
            }
        }
        if (dialer) {
            giveTurn(false);
        } else {
            say(new LinkMessage.Accept());
        }
    }

    private static Failure late() {
        return new Failure(ErrorCode.PROTOCOL, "a batch came after the end");
    }

    private void result(long transfer, int code) {
        for (var sending : List.copyOf(sendings.values())) {
            if (sending.transfer() == transfer) {
                if (code == 0 && sending.allSent()) {
                    endSending(sending, new Outcome.Done(sending.source().bytes()));
                } else {
                    var known =
                            code == 0
                                    ? ErrorCode.PROTOCOL
                                    : ErrorCode.ofWire(code).orElse(ErrorCode.PEER_REFUSED);
                    endSending(
                            sending,
                            new Outcome.Failed(
                                    new Failure(
                                            known,
                                            "receiver at "
                                                    + peer
                                                    + " does not take it: "
                                                    + known)));
                }
            }
        }
    }

    // ---- turns

    private void giveTurn(boolean dialerSends) {
        say(new LinkMessage.Turn(nextTurn++, dialerSends));
        takeTurn(dialerSends);
    }

    private void takeTurn(boolean thisSideSends) {
        List<Piece> pieces;
        GpuDriver.Buffer buffer;
        if (thisSideSends) {
            var own = outgoing;
            if (own == null || !own.announced || own.hasTurn) {
                throw LinkMessage.protocol("a turn for a batch that was not announced");
            }
            own.hasTurn = true;
            pieces = own.pieces;
            buffer = Objects.requireNonNull(sendBuffer);
        } else {
            var other = incoming;
            if (other == null || other.hasTurn) {
                throw LinkMessage.protocol("a turn for a batch that was not accepted");
            }
            other.hasTurn = true;
            pieces = other.batch.pieces();
            buffer = Objects.requireNonNull(receiveBuffer);
        }
        long[] lengths = pieces.stream().mapToLong(Piece::bytes).toArray();
        long bytes = pieces.stream().mapToLong(Piece::bytes).sum();
        Objects.requireNonNull(turns).add(new Turns.Turn(thisSideSends, buffer, lengths, bytes));
    }

    private void turnOver(Turns.Turn turn) {
        if (turn.sends()) {
            var own = Objects.requireNonNull(outgoing);
            outgoing = null;
            own.sending.left(own.pieces);
            advance();
        } else {
            scatter(Objects.requireNonNull(incoming).batch);
        }
    }

    // ---- the sending side

    /// Sends what can be sent now.
    void advance() {
        if (state != State.READY) {
            return;
        }
        for (var entry : List.copyOf(sendings.entrySet())) {
            var sending = entry.getValue();
            if (sending.transfer() < 0 && !sending.ended()) {
                sending.opened(entry.getKey());
                say(new LinkMessage.Open(entry.getKey(), sending.grant()));
            }
            if (sending.takeEnd()) {
                say(new LinkMessage.End(entry.getKey(), sending.source().bytes()));
            }
        }
        if (outgoing != null) {
            return;
        }
        for (var entry : List.copyOf(sendings.entrySet())) {
            var sending = entry.getValue();
            var pieces = sending.next(slotBytes);
            if (!pieces.isEmpty()) {
                sendings.remove(entry.getKey()); // to the end: the others have their turn first
                sendings.put(entry.getKey(), sending);
                gather(new Outgoing(sending, pieces));
                return;
            }
        }
    }

    private void gather(Outgoing batch) {
        try {
            if (sendBuffer == null) {
                sendBuffer = plane.driver().allocate(plane.limits().slotBytes());
            }
        } catch (KvFerryException e) {
            fail(Failure.of(e));
            return;
        }
        if (!batch.sending.beginGather()) {
            return;
        }
        outgoing = batch;
        var buffer = sendBuffer.host();
        copy(
                batch.sending::endGather,
                () -> {
                    List<Piece> summed;
                    Failure trouble = null;
                    try {
                        summed = BlockCopies.gather(batch.sending.source(), batch.pieces, buffer);
                    } catch (RuntimeException
                            | Error e) { // whoever waits for the blocks must be told
                        summed = batch.pieces;
                        trouble = Failure.of(e);
                    } finally {
                        batch.sending.endGather();
                    }
                    var pieces = summed;
                    var failure = trouble;
                    plane.post(() -> gathered(batch, pieces, failure));
                });
    }

    /// Starts a copy.
    ///
    /// @param notBegun where there was no memory for its thread
    private void copy(Runnable notBegun, Runnable work) {
        copies++;
        boolean begun = false;
        try {
            plane.copy(work);
            begun = true;
        } finally {
            if (!begun) {
                copies--;
                notBegun.run();
            }
        }
    }

    private void gathered(Outgoing batch, List<Piece> pieces, @Nullable Failure trouble) {
        copies--;
        if (state == State.OVER) {
            abandon();
            return;
        }
        if (trouble != null) {
            batch.sending.giveUp(trouble);
        }
        if (batch.sending.ended() || state != State.READY) {
            outgoing = null;
            advance();
            return;
        }
        batch.pieces = pieces;
        batch.announced = true;
        batch.answer = Deadline.in(plane.limits().turn());
        say(new LinkMessage.Batch(batch.sending.transfer(), pieces));
    }

    /// Its blocks are not read any more once it has ended.
    void endSending(NcclSending sending, Outcome outcome) {
        sendings.values().remove(sending);
        boolean unheard = sending.transfer() >= 0 && outcome instanceof Outcome.Failed;
        if (unheard && state == State.READY) {
            say(new LinkMessage.Cancel(sending.transfer()));
        }
        sending.finish(outcome);
    }

    // ---- the receiving side

    private void scatter(LinkMessage.Batch batch) {
        var window = windows.get(batch.transfer());
        if (window == null || !window.open() || !window.beginCopy()) {
            scattered();
            return;
        }
        var buffer = Objects.requireNonNull(receiveBuffer).host();
        copy(
                window::endCopy,
                () -> {
                    Failure trouble = null;
                    try {
                        int bad = BlockCopies.scatter(buffer, batch.pieces(), window.target());
                        if (bad >= 0) {
                            trouble =
                                    new Failure(
                                            ErrorCode.CORRUPT,
                                            "checksum of part %d is wrong"
                                                    .formatted(batch.pieces().get(bad).part()));
                        }
                    } catch (RuntimeException
                            | Error e) { // whoever waits for the blocks must be told
                        trouble = Failure.of(e);
                    } finally {
                        window.endCopy();
                    }
                    var failure = trouble;
                    plane.post(() -> copied(window, batch, failure));
                });
    }

    private void copied(NcclWindow window, LinkMessage.Batch batch, @Nullable Failure trouble) {
        copies--;
        incoming = null;
        window.copied(trouble == null ? batch.pieces() : List.of());
        if (trouble != null) {
            window.giveUp(trouble);
        }
        checkWindow(window);
        if (state == State.OVER) {
            abandon();
        } else {
            scattered();
        }
    }

    /// The receive buffer is free.
    private void scattered() {
        incoming = null;
        var next = early;
        early = null;
        if (next != null && state == State.READY) {
            try {
                announced(next);
            } catch (KvFerryException e) {
                fail(Failure.of(e));
            }
        }
    }

    /// Ends a window of which all is there, or which was given up while a copy ran.
    private void checkWindow(NcclWindow window) {
        var current = incoming;
        if (window.copying() || current != null && current.batch.transfer() == window.transfer()) {
            return; // again after that
        }
        var givenUp = window.givenUp();
        if (window.announced()) {
            var result = window.result();
            boolean whole = result instanceof Outcome.Done;
            endWindow(window, givenUp != null && !whole ? new Outcome.Failed(givenUp) : result);
        } else if (givenUp != null) {
            endWindow(window, new Outcome.Failed(givenUp));
        }
    }

    /// Its blocks are not written any more.
    void endWindow(NcclWindow window, Outcome outcome) {
        if (!windows.remove(window.transfer(), window)) {
            return;
        }
        if (state == State.READY) {
            int code = outcome instanceof Outcome.Failed(var failure) ? failure.code().wire() : 0;
            say(new LinkMessage.Result(window.transfer(), code));
        }
        window.finish(outcome);
    }

    // ---- progress and the end

    /// Looks after what runs.
    Pace look() {
        try {
            return switch (state) {
                case JOINING -> {
                    if (communicator != null && !readyHere && communicator.ready()) {
                        communicator.confirm();
                        readyHere = true;
                        say(new LinkMessage.Ready());
                        checkReady();
                    }
                    check("the communicator with " + peer + " was not made in time");
                    yield communicator != null && !readyHere ? Pace.STEADY : Pace.SLOW;
                }
                case YIELDED -> {
                    if (limit.passed()) {
                        state = State.DIALING;
                        plane.dial(this);
                    }
                    yield Pace.SLOW;
                }
                case READY -> {
                    var pace = Objects.requireNonNull(turns).advance();
                    var own = outgoing;
                    if (own != null && own.announced && !own.hasTurn) {
                        if (own.answer.passed()) {
                            throw new KvFerryException(
                                    ErrorCode.TIMEOUT, peer + " does not answer a batch");
                        }
                        pace = pace.faster(Pace.SLOW);
                    }
                    yield pace;
                }
                case LEAVING -> {
                    if (Objects.requireNonNull(communicator).ready()) {
                        communicator.destroy();
                        communicator = null;
                        over();
                    } else {
                        check("the communicator did not end in time");
                    }
                    yield Pace.STEADY;
                }
                case DIALING, OVER -> Pace.NONE;
            };
        } catch (RuntimeException | Error e) { // whatever it was, it ends no other link
            fail(Failure.of(e));
            return Pace.NONE;
        }
    }

    private void check(String what) {
        if (limit.passed()) {
            throw new KvFerryException(ErrorCode.TIMEOUT, what);
        }
    }

    /// Ends the link; what runs on the communicator is aborted.
    ///
    /// The peer hears of it by the end of the connection alone, not by the results of the
    /// transfers: a sender that heard such a result first would try again over this link, or over
    /// another communicator, as it does not avoid this peer yet.
    void fail(Failure why) {
        if (state == State.OVER) {
            return;
        }
        if (state == State.READY) {
            plane.avoid(peer);
        } else if (state != State.LEAVING) {
            plane.setUpFailed(this, why);
        }
        LOG.info("nccl plane: the link with {} ends: {}", peer, why);
        over();
        endAll(why);
    }

    /// Ends a link that nobody needs before it was made.
    void drop() {
        if (state != State.OVER) {
            over();
        }
    }

    /// Ends it with the plane: in order where nothing runs.
    void leave(Failure why) {
        if (state == State.OVER || state == State.LEAVING) {
            return;
        }
        boolean quiet = state == State.READY && copies == 0 && Objects.requireNonNull(turns).idle();
        endAll(why);
        if (!quiet) {
            over();
            return;
        }
        try {
            Objects.requireNonNull(communicator).finish();
            state = State.LEAVING;
            limit = Deadline.in(LEAVE_LIMIT);
        } catch (KvFerryException e) {
            LOG.debug("nccl plane: {}", e.toString());
            over();
        }
    }

    private void endAll(Failure why) {
        for (var sending : List.copyOf(sendings.values())) {
            endSending(sending, new Outcome.Failed(why));
        }
        for (var window : List.copyOf(windows.values())) {
            window.giveUp(why);
        }
    }

    private void over() {
        state = State.OVER;
        plane.gone(this);
        if (turns != null) {
            turns.clear();
        }
        if (socket != null) {
            socket.close();
        }
        abandon();
    }

    /// Gives up communicator and memory, when no copy uses the buffers any more.
    private void abandon() {
        if (copies > 0 || abandoned) {
            return;
        }
        abandoned = true;
        plane.free(peer, communicator, stream, sendBuffer, receiveBuffer);
    }
}
