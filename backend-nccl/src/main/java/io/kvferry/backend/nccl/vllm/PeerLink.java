// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.vllm;

import io.kvferry.backend.nccl.gpu.TensorLane;
import io.kvferry.backend.nccl.wire.PeerAddress;
import io.kvferry.backend.nccl.wire.VllmMessage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.zmtp.DealerSocket;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// The link to a peer that this rank has connected to: a DEALER, and the communicator that NEW made
/// over it, of which this rank is the first. Made when it is needed, dropped whenever anything goes
/// wrong, because neither side knows then what the other waits for.
///
/// Threading: one thread at a time, the owner; it waits for bounded times only. [#cut] from any.
final class PeerLink {
    /// Refusals in a row after which the link is made again: a peer that has lost its end of the
    /// link refuses as well, and vLLM's messages do not give the reason.
    static final int MOST_REFUSALS = 3;

    private final VllmParts own;
    private final PeerAddress peer;
    private @Nullable DealerSocket socket;
    private @Nullable TensorLane lane;

    /// Of the connection, without an answer.
    private AtomicInteger questions = new AtomicInteger();

    private volatile @Nullable DealerSocket cuttable;

    PeerLink(VllmParts own, PeerAddress peer) {
        this.own = own;
        this.peer = peer;
    }

    /// The communicator; creates it if there is none.
    ///
    /// @throws KvFerryException when that fails; there is no link afterwards
    TensorLane lane() {
        var known = lane;
        var connection = socket;
        if (known != null && connection != null && connection.isOpen()) {
            return known;
        }
        drop();
        try {
            return connect();
        } catch (KvFerryException e) {
            drop();
            throw e;
        }
    }

    private TensorLane connect() {
        var deadline = Deadline.in(own.limits().connect());
        var connection = own.channel().connect(peer.endpoint(), own.address(), deadline);
        socket = connection;
        cuttable = connection;
        var id = own.lanes().uniqueId();
        var made = own.lanes().open(peer.toString(), id, 0);
        lane = made;
        connection.onLost(() ->
                made.abandon(
                        new Failure(ErrorCode.PEER_LOST, peer + " has closed the connection")));
        // vLLM says nothing before it is asked: what comes now is the refusal of NEW.
        var standing = new AtomicBoolean();
        var open = new AtomicInteger();
        questions = open;
        connection.onMessage(() -> {
            if (!standing.get()) {
                made.abandon(
                        new Failure(ErrorCode.BACKPRESSURE, peer + " makes no more communicators"));
            } else if (open.decrementAndGet() < 0) { // it would be taken for the next answer
                made.abandon(new Failure(ErrorCode.PROTOCOL, peer + " answers what was not asked"));
                connection.close();
            }
        });
        connection.send(new VllmMessage.New(id).encode());
        made.awaitReady();
        standing.set(true);
        return made;
    }

    /// Asks, and waits for the answer.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT], [ErrorCode#PEER_LOST], [ErrorCode#PROTOCOL];
    ///   the link is to be dropped then
    byte[] ask(VllmMessage question) {
        var connection = socket;
        if (connection == null) {
            throw new KvFerryException(ErrorCode.PEER_LOST, peer + ": no connection");
        }
        questions.incrementAndGet();
        connection.send(question.encode());
        return connection.receive(Deadline.in(own.limits().answer()));
    }

    /// Whether there is no link. Drops a link whose connection is lost.
    boolean isDown() {
        var connection = socket;
        if (connection != null && !connection.isOpen()) {
            drop();
        }
        return socket == null;
    }

    void drop() {
        var old = lane;
        lane = null;
        if (old != null) {
            old.close();
        }
        var connection = socket;
        socket = null;
        if (connection != null) {
            connection.close();
        }
    }

    /// Ends what the owner waits for.
    void cut() {
        var connection = cuttable;
        if (connection != null) {
            connection.close();
        }
    }
}
