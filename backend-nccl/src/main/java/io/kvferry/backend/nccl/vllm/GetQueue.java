// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/// Gets the layers of prompts from one prefiller, one prompt after the other: GET, answer,
/// `ncclRecv`, blocks.
///
/// Threading: any thread; a virtual thread works while there is something to get.
final class GetQueue {
    private static final Logger LOG = LoggerFactory.getLogger(GetQueue.class);
    private static final int MOST_WAITING = 1 << 16;

    private final VllmParts own;
    private final PeerAddress peer;
    private final PeerLink link;
    private final Strand strand;
    private int refusals;
    private volatile boolean closed;

    GetQueue(VllmParts own, PeerAddress peer) {
        this.own = own;
        this.peer = peer;
        this.link = new PeerLink(own, peer);
        this.strand = new Strand("p2p-get-" + peer, MOST_WAITING);
    }

    /// @param requestId as the prefiller calls the request
    void get(String requestId, LoadTask load) {
        if (!strand.offer(() -> run(requestId, load))) {
            load.use()
                    .fail(
                            new Failure(
                                    ErrorCode.BACKPRESSURE,
                                    "too many loads from " + peer + ", or no thread for them"));
        }
    }

    private void run(String requestId, LoadTask load) {
        try {
            for (int layer = 0; layer < own.form().layers(); layer++) {
                if (closed) {
                    load.use().fail(new Failure(ErrorCode.CLOSED, "the connector is closed"));
                } else if (load.deadline().passed()) {
                    load.use().fail(new Failure(ErrorCode.TIMEOUT, peer + " was too slow"));
                }
                if (load.use().isOver()) {
                    return;
                }
                get(requestId, layer, load);
            }
            load.use().finish(new Outcome.Done(load.bytes(own.form())));
        } catch (KvFerryException e) {
            if (e.code() != ErrorCode.NOT_FOUND) {
                LOG.warn("{}: {}; the link is given up", peer, e.getMessage());
                link.drop();
            } else if (++refusals == PeerLink.MOST_REFUSALS) {
                refusals = 0;
                link.drop();
            }
            load.use().fail(Failure.of(e));
        } catch (RuntimeException | Error e) {
            link.drop();
            load.use().fail(Failure.of(e));
        }
    }

    private void get(String requestId, int layer, LoadTask load) {
        var form = own.form();
        var lane = link.lane();
        var name = form.layer(layer);
        var answer = link.ask(new VllmMessage.Get(TensorIds.of(requestId, name)));
        switch (VllmMessage.decode(answer)) {
            case VllmMessage.Found found -> {
                // From here on the prefiller waits in ncclSend: who does not take it drops the
                // link.
                int blocks = form.blocks(found.shape(), found.dtype());
                var misfit = load.misfit(blocks);
                if (misfit.isPresent()) {
                    throw misfit.get().toException();
                }
                long bytes = form.bytes(blocks);
                var buffer = lane.buffer(bytes);
                lane.receive(bytes);
                refusals = 0;
                var _ = load.use().copy(() -> load.scatter(form, layer, blocks, buffer));
            }
            case VllmMessage.Missing _ ->
                    throw new KvFerryException(
                            ErrorCode.NOT_FOUND, peer + " has no tensor of " + requestId);
            default ->
                    throw new KvFerryException(
                            ErrorCode.PROTOCOL, peer + " answers a GET with something else");
        }
    }

    /// Whether there is nothing to get and no link; a link that is lost is dropped.
    boolean isDown() {
        return strand.idle(link::isDown);
    }

    void close() {
        closed = true;
        link.cut();
        strand.add(link::drop);
    }
}
