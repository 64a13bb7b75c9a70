// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.jspecify.annotations.Nullable;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/// The receiving direction of a link: the windows that its peer has connected to, and the batch in
/// flight to one of them.
///
/// ```
/// announced by the peer -> given a turn -> in the buffer -> scattered into the blocks
/// ```
///
/// Threading: confined to the loop.
final class LinkReceiver {
    private final Link link;
    private final Gpu gpu;
    private final OpenTransfers transfers;
    private final LinkResources resources;
    private final Map<Long, NcclWindow> windows = new HashMap<>();

    /// From its announcement until it is scattered.
    private @Nullable Incoming incoming;

    /// Announced while the one before is being scattered.
    private LinkMessage.@Nullable Batch early;

    private static final class Incoming {
        private final LinkMessage.Batch batch;
        private boolean hasTurn;

        Incoming(LinkMessage.Batch batch) {
            this.batch = batch;
        }
    }

    LinkReceiver(Link link, Gpu gpu, OpenTransfers transfers, LinkResources resources) {
        this.link = link;
        this.gpu = gpu;
        this.transfers = transfers;
        this.resources = resources;
    }

    /// The peer names the grant of a window, and shows that it knows it.
    void open(LinkMessage.Open open) {
        if (windows.containsKey(open.transfer()) || isAnnounced(open.transfer())) {
            // a batch is checked against its window when it is announced
            throw LinkMessage.unexpected(open);
        }
        var window = transfers.find(open.grant());
        if (window == null) {
            refuse(open, ErrorCode.NOT_FOUND);
        } else if (!link.nonces().provesSender(window.proof(), open.proof())) {
            refuse(open, ErrorCode.PEER_REFUSED); // the window stays open
        } else if (!transfers.take(window)) {
            refuse(open, ErrorCode.NOT_FOUND);
        } else {
            window.adopt(this, open.transfer());
            windows.put(open.transfer(), window);
            var proof = link.nonces().ofReceiver(window.proof());
            link.say(new LinkMessage.Opened(open.transfer(), proof));
        }
    }

    private void refuse(LinkMessage.Open open, ErrorCode code) {
        link.say(new LinkMessage.Result(open.transfer(), code.wire()));
    }

    private boolean isAnnounced(long transfer) {
        return incoming != null && incoming.batch.transfer() == transfer
                || early != null && early.transfer() == transfer;
    }

    void announced(LinkMessage.Batch batch) {
        if (!link.ready() || batch.bytes() > link.slotBytes() || early != null) {
            throw LinkMessage.unexpected(batch);
        }
        if (incoming != null) {
            early = batch;
            return;
        }
        incoming = new Incoming(batch);
        var _ = resources.receiveBuffer(); // or there is no room for it
        var window = windows.get(batch.transfer());
        if (window != null && window.open()) {
            var misfit = window.announced() ? late() : window.misfit(batch.pieces());
            if (misfit != null) {
                window.giveUp(misfit);
            }
        }
        link.accept();
    }

    private static Failure late() {
        return new Failure(ErrorCode.PROTOCOL, "a batch came after the end");
    }

    /// The peer's batch has its turn.
    ///
    /// @throws KvFerryException [ErrorCode#PROTOCOL] when there is none
    Turns.Turn takeTurn() {
        var other = incoming;
        if (other == null || other.hasTurn) {
            throw LinkMessage.protocol("a turn for a batch that was not accepted");
        }
        other.hasTurn = true;
        return Turns.Turn.of(false, resources.receiveBuffer(), other.batch.pieces());
    }

    /// The batch is in the buffer.
    void turnOver() {
        scatter(Objects.requireNonNull(incoming).batch);
    }

    private void scatter(LinkMessage.Batch batch) {
        var window = windows.get(batch.transfer());
        if (window == null || !window.open() || !window.beginCopy()) {
            scattered();
            return;
        }
        var buffer = resources.receiveBuffer().host();
        resources.copy(
                () -> {
                    window.endCopy();
                    window.copied(List.of());
                },
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
                    } catch (RuntimeException | Error e) { // any failure must end the transfer
                        trouble = Failure.of(e);
                    } finally {
                        window.endCopy();
                    }
                    var failure = trouble;
                    gpu.post(() -> copied(window, batch, failure));
                });
    }

    private void copied(NcclWindow window, LinkMessage.Batch batch, @Nullable Failure trouble) {
        resources.copied();
        incoming = null;
        window.copied(trouble == null ? batch.pieces() : List.of());
        if (trouble != null) {
            window.giveUp(trouble);
        }
        checkWindow(window);
        if (!link.isOver()) {
            scattered();
        }
    }

    /// The buffer is free.
    private void scattered() {
        incoming = null;
        var next = early;
        early = null;
        if (next != null && link.ready()) {
            try {
                announced(next);
            } catch (KvFerryException e) {
                link.fail(Failure.of(e));
            }
        }
    }

    /// The sender has said that this was all.
    void end(long transfer, long bytes) {
        var window = windows.get(transfer);
        if (window != null) {
            window.announce(bytes);
            checkWindow(window);
        }
    }

    /// The sender has given up.
    void cancel(long transfer) {
        var window = windows.get(transfer);
        if (window != null) {
            window.giveUp(new Failure(ErrorCode.PEER_LOST, "the sender has given up"));
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
        if (link.ready()) {
            int code = outcome instanceof Outcome.Failed(var failure) ? failure.code().wire() : 0;
            link.say(new LinkMessage.Result(window.transfer(), code));
        }
        window.finish(outcome);
    }

    void giveUpAll(Failure why) {
        for (var window : List.copyOf(windows.values())) {
            window.giveUp(why);
        }
    }
}
