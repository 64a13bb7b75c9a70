// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.wire;

import java.util.Optional;
import java.util.UUID;

/// The request id of vLLM's P2pNccl proxy, which names both engines:
/// `___prefill_addr_HOST:PORT___decode_addr_HOST:PORT_UUID`. Servers put a prefix before it
/// (`cmpl-`) and a suffix behind it (`-0`, and `-` with eight random hex digits); neither belongs
/// to [#transferId], which is thereby equal on both engines.
///
/// @param prefill address of rank 0 of the prefiller
/// @param decode address of rank 0 of the decoder
public record RequestAddresses(PeerAddress prefill, PeerAddress decode, String unique) {
    private static final String PREFILL = "___prefill_addr_";
    private static final String DECODE = "___decode_addr_";
    private static final int UNIQUE_DIGITS = 32;

    /// The addresses in an id; empty where it is not of this form.
    public static Optional<RequestAddresses> parse(String requestId) {
        int from = requestId.indexOf(PREFILL);
        int middle = from < 0 ? -1 : requestId.indexOf(DECODE, from + PREFILL.length());
        if (middle < 0) {
            return Optional.empty();
        }
        int start = middle + DECODE.length();
        for (int end = requestId.indexOf('_', start); end > 0; end = next(requestId, end)) {
            int stop = end + 1 + UNIQUE_DIGITS;
            if (stop <= requestId.length() && isHex(requestId, end + 1, stop)) {
                var unique = requestId.substring(end + 1, stop);
                var prefill =
                        PeerAddress.parse(requestId.substring(from + PREFILL.length(), middle));
                var decode = PeerAddress.parse(requestId.substring(start, end));
                return prefill.flatMap(p -> decode.map(d -> new RequestAddresses(p, d, unique)));
            }
        }
        return Optional.empty();
    }

    private static int next(String text, int after) {
        return text.indexOf('_', after + 1);
    }

    private static boolean isHex(String text, int from, int to) {
        for (int i = from; i < to; i++) {
            if (Character.digit(text.charAt(i), 16) < 0) {
                return false;
            }
        }
        return true;
    }

    /// An id with a new unique part.
    public static RequestAddresses draw(PeerAddress prefill, PeerAddress decode) {
        return new RequestAddresses(prefill, decode, UUID.randomUUID().toString().replace("-", ""));
    }

    /// The key of the transfer: the id without what servers add.
    public String transferId() {
        return PREFILL + prefill + DECODE + decode + "_" + unique;
    }
}
