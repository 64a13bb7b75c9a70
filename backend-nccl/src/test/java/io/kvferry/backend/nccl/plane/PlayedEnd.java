// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.wire.Grant;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/// The beginning of a connection as a test plays one end of it, against a plane at the other.
final class PlayedEnd {
    private PlayedEnd() {}

    /// Says hello, and takes the challenge.
    ///
    /// @return what has to be said next, without a process
    static ByteBuffer sender(SocketChannel channel, Grant grant, boolean sums) throws IOException {
        var proof = new GrantProof(grant);
        var nonce = GrantProof.nonce();
        HostWire.writeFully(channel, HostWire.hello(proof.name(), nonce));
        assertThat(HostWire.readInt(channel, HostWire.buffer(Integer.BYTES))).isZero();
        var challenge = HostWire.buffer(HostWire.CHALLENGE_BYTES);
        HostWire.readFully(channel, challenge);
        var theirs = HostWire.bytes(challenge.flip(), GrantProof.NONCE_BYTES);
        var shown = HostWire.bytes(challenge, GrantProof.PROOF_BYTES);
        assertThat(proof.isOfReceiver(shown, nonce, theirs)).isTrue();
        return HostWire.process(proof.ofSender(nonce, theirs), sums);
    }

    /// Hears the hello, and has the sender prove that it knows the grant.
    ///
    /// @return what it says of itself as a process
    static ByteBuffer receiver(SocketChannel channel, Grant grant) throws IOException {
        var proof = new GrantProof(grant);
        var hello = HostWire.buffer(HostWire.HELLO_BYTES);
        HostWire.readFully(channel, hello);
        hello.position(HostWire.HELLO_BYTES - GrantProof.NONCE_BYTES);
        var theirs = HostWire.bytes(hello, GrantProof.NONCE_BYTES);
        var nonce = GrantProof.nonce();
        HostWire.writeFully(channel, HostWire.challenge(nonce, proof.ofReceiver(theirs, nonce)));
        var answer = HostWire.buffer(GrantProof.PROOF_BYTES + HostWire.PROCESS_BYTES);
        HostWire.readFully(channel, answer);
        var shown = HostWire.bytes(answer.flip(), GrantProof.PROOF_BYTES);
        assertThat(proof.isOfSender(shown, theirs, nonce)).isTrue();
        return answer.slice().order(answer.order());
    }
}
