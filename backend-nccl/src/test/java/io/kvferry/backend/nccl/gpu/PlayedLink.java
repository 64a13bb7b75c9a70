// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.backend.nccl.wire.Grant;

import java.io.IOException;
import java.nio.channels.SocketChannel;

/// One end of a link that a test plays, up to the welcome.
final class PlayedLink {
    private static final LinkMessage.PlaneId PLANE = new LinkMessage.PlaneId(1, 2);

    private PlayedLink() {}

    static LinkMessage.Hello hello(Grant grant, long slotBytes) {
        var name = new GrantProof(grant).name();
        return new LinkMessage.Hello(PLANE, 1, "127.0.0.1:1", slotBytes, name, GrantProof.nonce());
    }

    /// Dials, and both ends prove that they know the grant.
    static LinkNonces dial(SocketChannel channel, Grant grant, long slotBytes) throws IOException {
        var proof = new GrantProof(grant);
        var nonces = challenged(channel, hello(grant, slotBytes), proof);
        LinkSocket.writeMessage(channel, new LinkMessage.Proof(nonces.ofSender(proof)));
        assertThat(read(channel, LinkMessage.Welcome.class).code()).isZero();
        return nonces;
    }

    /// Says hello, and lets the listener prove that it knows the grant.
    static LinkNonces challenged(SocketChannel channel, LinkMessage.Hello hello, GrantProof proof)
            throws IOException {
        LinkSocket.writeMessage(channel, hello);
        var challenge = read(channel, LinkMessage.Challenge.class);
        var nonces = new LinkNonces(hello.nonce(), challenge.nonce());
        assertThat(nonces.provesReceiver(proof, challenge.proof())).isTrue();
        return nonces;
    }

    /// Is dialed, and both ends prove that they know the grant.
    static LinkNonces answer(SocketChannel channel, Grant grant, long slotBytes)
            throws IOException {
        var proof = new GrantProof(grant);
        var hello = read(channel, LinkMessage.Hello.class);
        var nonces = new LinkNonces(GrantProof.nonce(), hello.nonce());
        LinkSocket.writeMessage(
                channel, new LinkMessage.Challenge(nonces.own(), nonces.ofReceiver(proof)));
        var shown = read(channel, LinkMessage.Proof.class).proof();
        assertThat(nonces.provesSender(proof, shown)).isTrue();
        LinkSocket.writeMessage(channel, new LinkMessage.Welcome(PLANE, 0, 0, slotBytes));
        return nonces;
    }

    static LinkMessage.Open open(long transfer, Grant grant, LinkNonces nonces) {
        var proof = new GrantProof(grant);
        return new LinkMessage.Open(transfer, proof.name(), nonces.ofSender(proof));
    }

    /// The next message, which is such a one.
    static <T extends LinkMessage> T read(SocketChannel channel, Class<T> kind) throws IOException {
        var message = LinkSocket.readMessage(channel);
        assertThat(message).isInstanceOf(kind);
        return kind.cast(message);
    }
}
