// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.gpu.LinkMessage.Piece;
import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// The sending direction of a link: its transfers, of which one batch at most is on its way.
///
/// ```
/// gathered into the buffer -> announced -> given a turn -> has left
/// ```
///
/// Threading: confined to the loop.
final class LinkSender {
    private final Link link;
    private final Gpu gpu;
    private final LinkResources resources;
    private final Map<Long, NcclSending> sendings = new LinkedHashMap<>();
    private long drawn;

    /// From the gathering of its blocks until its turn is over.
    private @Nullable Outgoing outgoing;

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

    LinkSender(Link link, Gpu gpu, LinkResources resources) {
        this.link = link;
        this.gpu = gpu;
        this.resources = resources;
    }

    /// A sending whose grant is to be proven to the peer, by the dialer.
    @Nullable NcclSending first() {
        return sendings.isEmpty() ? null : sendings.values().iterator().next();
    }

    void add(NcclSending sending) {
        sending.leaveBy(this);
        sendings.put(drawn++, sending);
        advance();
    }

    /// Sends what can be sent now.
    void advance() {
        if (!link.ready()) {
            return;
        }
        for (var entry : List.copyOf(sendings.entrySet())) {
            var sending = entry.getValue();
            if (sending.transfer() < 0 && !sending.ended()) {
                sending.opened(entry.getKey());
                var proof = sending.proof();
                link.say(
                        new LinkMessage.Open(
                                entry.getKey(), proof.name(), link.nonces().ofSender(proof)));
            }
            if (sending.takeEnd()) {
                link.say(new LinkMessage.End(entry.getKey(), sending.source().bytes()));
            }
        }
        if (outgoing != null) {
            return;
        }
        for (var entry : List.copyOf(sendings.entrySet())) {
            var sending = entry.getValue();
            var pieces = sending.next(link.slotBytes());
            if (!pieces.isEmpty()) {
                sendings.remove(entry.getKey()); // to the end: the others have their turn first
                sendings.put(entry.getKey(), sending);
                gather(new Outgoing(sending, pieces));
                return;
            }
        }
    }

    /// The receiver has opened a transfer, and shows that it knows the grant.
    void opened(LinkMessage.Opened opened) {
        for (var sending : List.copyOf(sendings.values())) {
            if (sending.transfer() != opened.transfer()) {
                continue;
            }
            if (link.nonces().provesReceiver(sending.proof(), opened.proof())) {
                sending.proven();
            } else {
                end(sending, new Outcome.Failed(Failure.of(LinkMessage.unproven(link.peer()))));
            }
        }
        advance();
    }

    private void gather(Outgoing batch) {
        try {
            begin(batch, resources.sendBuffer().host());
        } catch (RuntimeException | Error e) { // no memory for a buffer or a thread, for one
            link.fail(Failure.of(e));
        }
    }

    private void begin(Outgoing batch, MemorySegment buffer) {
        if (!batch.sending.beginGather()) {
            return;
        }
        outgoing = batch;
        resources.copy(
                batch.sending::endGather,
                () -> {
                    List<Piece> summed;
                    Failure trouble = null;
                    try {
                        summed = BlockCopies.gather(batch.sending.source(), batch.pieces, buffer);
                    } catch (RuntimeException | Error e) { // any failure must end the transfer
                        summed = batch.pieces;
                        trouble = Failure.of(e);
                    } finally {
                        batch.sending.endGather();
                    }
                    var pieces = summed;
                    var failure = trouble;
                    gpu.post(() -> gathered(batch, pieces, failure));
                });
    }

    private void gathered(Outgoing batch, List<Piece> pieces, @Nullable Failure trouble) {
        resources.copied();
        if (link.isOver()) {
            return;
        }
        if (trouble != null) {
            batch.sending.giveUp(trouble);
        }
        if (batch.sending.ended() || !link.ready()) {
            outgoing = null;
            advance();
            return;
        }
        batch.pieces = pieces;
        batch.announced = true;
        batch.answer = Deadline.in(gpu.limits().turn());
        link.say(new LinkMessage.Batch(batch.sending.transfer(), pieces));
    }

    /// Whether a batch has been announced and has no turn yet.
    boolean awaitsTurn() {
        var own = outgoing;
        return own != null && own.announced && !own.hasTurn;
    }

    /// @throws KvFerryException [ErrorCode#TIMEOUT] when the peer does not answer a batch
    void checkAnswer() {
        if (awaitsTurn() && Objects.requireNonNull(outgoing).answer.passed()) {
            throw new KvFerryException(ErrorCode.TIMEOUT, link.peer() + " does not answer a batch");
        }
    }

    /// The batch has its turn.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL] when there is none
    Turns.Turn takeTurn() {
        if (!awaitsTurn()) {
            throw LinkMessage.protocol("a turn for a batch that was not announced");
        }
        var own = Objects.requireNonNull(outgoing);
        own.hasTurn = true;
        return Turns.Turn.of(true, resources.sendBuffer(), own.pieces);
    }

    /// The batch has left.
    void turnOver() {
        var own = Objects.requireNonNull(outgoing);
        outgoing = null;
        own.sending.left(own.pieces);
        advance();
    }

    /// The receiver says how a transfer ended.
    void result(long transfer, int code) {
        for (var sending : List.copyOf(sendings.values())) {
            if (sending.transfer() == transfer) {
                end(sending, outcome(sending, code));
            }
        }
    }

    private Outcome outcome(NcclSending sending, int code) {
        if (code == 0 && sending.allSent()) {
            return new Outcome.Done(sending.source().bytes());
        }
        var known =
                code == 0
                        ? ErrorCode.PROTOCOL
                        : ErrorCode.ofWire(code).orElse(ErrorCode.PEER_REFUSED);
        return new Outcome.Failed(
                new Failure(known, "receiver at " + link.peer() + " does not take it: " + known));
    }

    /// Its blocks are not read any more once it has ended.
    void end(NcclSending sending, Outcome outcome) {
        sendings.values().remove(sending);
        boolean unheard = sending.transfer() >= 0 && outcome instanceof Outcome.Failed;
        if (unheard && link.ready()) {
            link.say(new LinkMessage.Cancel(sending.transfer()));
        }
        sending.finish(outcome);
    }

    void endAll(Failure why) {
        for (var sending : List.copyOf(sendings.values())) {
            end(sending, new Outcome.Failed(why));
        }
    }
}
