// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.GpuLoop.Pace;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
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
/// turns. This type has the state above and the order of the turns; [LinkSender] and [LinkReceiver]
/// have the two directions.
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

    private final Gpu gpu;
    private final Links links;
    private final String peer;
    private final LinkResources resources;
    private final LinkSender sender;
    private final LinkReceiver receiver;
    private State state = State.DIALING;
    private Deadline limit;
    private @Nullable LinkSocket socket;
    private @Nullable LinkNonces nonces;
    private @Nullable Turns turns;
    private boolean dialer;
    private boolean readyHere;
    private boolean readyThere;
    private long slotBytes;
    private long nextTurn;
    private LinkMessage.@Nullable PlaneId peerPlane;
    private long voidDials;

    Link(Gpu gpu, OpenTransfers transfers, Links links, String peer) {
        this.gpu = gpu;
        this.links = links;
        this.peer = peer;
        this.resources = new LinkResources(gpu, peer, links::free);
        this.sender = new LinkSender(this, gpu, resources);
        this.receiver = new LinkReceiver(this, gpu, transfers, resources);
        this.limit = Deadline.in(gpu.limits().setUp());
        this.slotBytes = gpu.limits().slotBytes();
    }

    String peer() {
        return peer;
    }

    LinkSender sender() {
        return sender;
    }

    boolean dialing() {
        return state == State.DIALING;
    }

    boolean yielded() {
        return state == State.YIELDED;
    }

    /// Whether transfers can move.
    boolean ready() {
        return state == State.READY;
    }

    boolean isOver() {
        return state == State.OVER;
    }

    /// Of the largest batch that both sides take.
    long slotBytes() {
        return slotBytes;
    }

    /// With which the grants of its transfers are proven, once it is not being dialed any more.
    LinkNonces nonces() {
        return Objects.requireNonNull(nonces);
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
    void dialed(LinkSocket connection, LinkNonces drawn, LinkMessage.Welcome welcome) {
        dialer = true;
        peerPlane = welcome.plane();
        voidDials = welcome.voidDials();
        try {
            join(connection, drawn, welcome.slotBytes());
            var id = gpu.library().uniqueId();
            connection.send(new LinkMessage.Identity(id));
            begin(id);
        } catch (RuntimeException | Error e) { // as in look()
            fail(Failure.of(e));
        }
    }

    /// The peer dialed and was welcomed: this side is rank 1.
    void answered(LinkSocket connection, LinkNonces drawn, long peerSlotBytes) {
        dialer = false;
        try {
            join(connection, drawn, peerSlotBytes);
        } catch (RuntimeException | Error e) { // as in look()
            fail(Failure.of(e));
        }
    }

    private void join(LinkSocket connection, LinkNonces drawn, long peerSlotBytes) {
        state = State.JOINING;
        limit = Deadline.in(gpu.limits().setUp());
        socket = connection;
        nonces = drawn;
        slotBytes = Math.min(slotBytes, peerSlotBytes);
        links.joined(connection); // before it starts: it may end, and leave, at once
        boolean started = false;
        try {
            connection.start(
                    message ->
                            gpu.post(() -> {
                                connection.heard();
                                hear(message);
                            }),
                    failure -> {
                        links.left(connection);
                        gpu.post(() -> fail(failure));
                    });
            started = true;
        } finally {
            if (!started) { // no memory for a thread
                links.left(connection);
            }
        }
    }

    private void begin(byte[] id) {
        turns = resources.join(id, dialer ? 0 : 1, this::turnOver);
    }

    private void checkReady() {
        if (readyHere && readyThere && state == State.JOINING) {
            state = State.READY;
            LOG.info("nccl plane: linked with {} as rank {}", peer, dialer ? 0 : 1);
            sender.advance();
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
                    if (dialer
                            || resources.communicator() != null
                            || id.length != NcclLibrary.ID_BYTES) {
                        throw LinkMessage.unexpected(message);
                    }
                    begin(id);
                }
                case LinkMessage.Ready() -> {
                    readyThere = true;
                    checkReady();
                }
                case LinkMessage.Open open -> receiver.open(open);
                case LinkMessage.Opened opened -> sender.opened(opened);
                case LinkMessage.Batch batch -> receiver.announced(batch);
                case LinkMessage.Accept() -> {
                    if (!dialer || !sender.awaitsTurn()) {
                        throw LinkMessage.unexpected(message);
                    }
                    giveTurn(true);
                }
                case LinkMessage.Turn(var number, var dialerSends) -> {
                    if (dialer || number != nextTurn) {
                        throw LinkMessage.unexpected(message);
                    }
                    nextTurn++;
                    takeTurn(!dialerSends);
                }
                case LinkMessage.End(var transfer, var bytes) -> receiver.end(transfer, bytes);
                case LinkMessage.Cancel(var transfer) -> receiver.cancel(transfer);
                case LinkMessage.Result(var transfer, var code) -> sender.result(transfer, code);
                case LinkMessage.Hello _,
                        LinkMessage.Challenge _,
                        LinkMessage.Proof _,
                        LinkMessage.Welcome _ ->
                        throw LinkMessage.unexpected(message);
            }
        } catch (RuntimeException | Error e) { // any failure must end the transfers
            fail(Failure.of(e));
        }
    }

    void say(LinkMessage message) {
        Objects.requireNonNull(socket).send(message);
    }

    // ---- turns

    /// The batch that the peer announced may come.
    void accept() {
        if (dialer) {
            giveTurn(false);
        } else {
            say(new LinkMessage.Accept());
        }
    }

    private void giveTurn(boolean dialerSends) {
        say(new LinkMessage.Turn(nextTurn++, dialerSends));
        takeTurn(dialerSends);
    }

    private void takeTurn(boolean thisSideSends) {
        var turn = thisSideSends ? sender.takeTurn() : receiver.takeTurn();
        Objects.requireNonNull(turns).add(turn);
    }

    private void turnOver(Turns.Turn turn) {
        if (turn.sends()) {
            sender.turnOver();
        } else {
            receiver.turnOver();
        }
    }

    // ---- progress and the end

    /// Looks after what runs.
    Pace look() {
        try {
            return switch (state) {
                case JOINING -> lookAfterJoining();
                case YIELDED -> {
                    if (limit.passed()) {
                        state = State.DIALING;
                        links.dial(this);
                    }
                    yield Pace.SLOW;
                }
                case READY -> {
                    var pace = Objects.requireNonNull(turns).advance();
                    sender.checkAnswer();
                    yield sender.awaitsTurn() ? pace.faster(Pace.SLOW) : pace;
                }
                case LEAVING -> {
                    if (Objects.requireNonNull(resources.communicator()).ready()) {
                        resources.destroyCommunicator();
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

    private Pace lookAfterJoining() {
        var communicator = resources.communicator();
        if (communicator != null && !readyHere && communicator.ready()) {
            communicator.confirm();
            readyHere = true;
            say(new LinkMessage.Ready());
            checkReady();
        }
        check("the communicator with " + peer + " was not made in time");
        return communicator != null && !readyHere ? Pace.STEADY : Pace.SLOW;
    }

    private void check(String what) {
        if (limit.passed()) {
            throw new KvFerryException(ErrorCode.TIMEOUT, what);
        }
    }

    /// Ends the link, and aborts operations on the communicator.
    ///
    /// The peer learns of this only from the end of the connection, not from the results of the
    /// transfers. A sender that got such a result first would not avoid this peer yet, and would
    /// retry over this link or a new communicator.
    void fail(Failure why) {
        if (state == State.OVER) {
            return;
        }
        if (state == State.READY) {
            links.avoid(peer);
        } else if (state != State.LEAVING) {
            links.setUpFailed(this, why);
        }
        LOG.info("nccl plane: the link with {} ends: {}", peer, why);
        over();
        endAll(why);
    }

    /// Ends a link that is no longer needed before it is set up.
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
        boolean quiet =
                state == State.READY
                        && !resources.copying()
                        && Objects.requireNonNull(turns).idle();
        endAll(why);
        if (!quiet) {
            over();
            return;
        }
        try {
            Objects.requireNonNull(resources.communicator()).finish();
            state = State.LEAVING;
            limit = Deadline.in(LEAVE_LIMIT);
        } catch (KvFerryException e) {
            LOG.debug("nccl plane: {}", e.toString());
            over();
        }
    }

    private void endAll(Failure why) {
        sender.endAll(why);
        receiver.giveUpAll(why);
    }

    private void over() {
        state = State.OVER;
        links.gone(this);
        if (turns != null) {
            turns.clear();
        }
        if (socket != null) {
            socket.close();
        }
        resources.giveUp();
    }
}
