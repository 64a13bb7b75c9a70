// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import java.io.IOException;

/// The real msgspec with the structs of vLLM 0.33.0.
public final class CodecPeer implements AutoCloseable {
    private final PythonPeer peer;

    public CodecPeer() throws IOException {
        peer = new PythonPeer("codec");
    }

    /// The message as msgspec writes it after reading it, or `refused`.
    public String encodedAgain(String kind, String hex) {
        var answer = peer.ask("%s %s", kind, hex);
        return answer.substring(0, answer.indexOf(' '));
    }

    @Override
    public void close() throws IOException {
        peer.close();
    }
}
