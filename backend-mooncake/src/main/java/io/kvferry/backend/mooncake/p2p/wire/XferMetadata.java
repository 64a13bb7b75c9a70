// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/// A decoder rank's request to one prefiller rank: where its KV memory is, and which blocks it
/// wants filled.
///
/// @param generation as configured (to send) or as recognised (received)
/// @param remoteHostname host of the decoder's transfer engine
/// @param remotePort handshake port of the decoder's transfer engine
/// @param remoteTpSize the decoder's tensor-parallel size
/// @param reqBlocks by the decoder's request id, in order
/// @param regions [WireRegions#NONE] in the short form, which refers to `layoutId` instead
/// @param remotePpSize the decoder's pipeline-parallel size
/// @param layoutId unsigned; 0 for none
public record XferMetadata(
        Generation generation,
        String remoteHostname,
        int remotePort,
        int remoteTpSize,
        int remoteTpRank,
        Map<String, RequestBlocks> reqBlocks,
        WireRegions regions,
        int remotePpSize,
        long layoutId,
        Optional<PeerExtension> extension) {
    /// Of ranks in either direction: their product and sums fit an int.
    private static final int MOST_RANKS = 1 << 14;

    /// Of the objects that a request is made of, and of the slot where it waits.
    private static final int REQUEST_BYTES = 1024;

    private static final int LIST_BYTES = 24;

    public XferMetadata {
        Objects.requireNonNull(generation, "generation");
        Objects.requireNonNull(remoteHostname, "remoteHostname");
        Objects.requireNonNull(regions, "regions");
        Objects.requireNonNull(extension, "extension");
        reqBlocks = Collections.unmodifiableMap(new LinkedHashMap<>(reqBlocks));
        if (remotePort < 0 || remotePort > 65_535) {
            throw new IllegalArgumentException("remote_port is out of 0..65535: " + remotePort);
        }
        if (remoteTpSize < 1
                || remoteTpRank < 0
                || remoteTpRank >= remoteTpSize
                || remotePpSize < 1
                || remoteTpSize > MOST_RANKS
                || remotePpSize > MOST_RANKS) {
            throw new IllegalArgumentException(
                    "inconsistent ranks: tp "
                            + remoteTpRank
                            + "/"
                            + remoteTpSize
                            + ", pp size "
                            + remotePpSize);
        }
    }

    /// The transfer engine segment to write to.
    public String segmentName() {
        return remoteHostname.indexOf(':') >= 0 && !remoteHostname.startsWith("[")
                ? "[" + remoteHostname + "]:" + remotePort
                : remoteHostname + ":" + remotePort;
    }

    /// Heap that its requests take while they wait, about.
    public long heapBytes() {
        long bytes = 0;
        for (var entry : reqBlocks.entrySet()) {
            var wanted = entry.getValue();
            bytes += REQUEST_BYTES + entry.getKey().length() + wanted.transferId().length();
            for (int[] group : wanted.groups()) {
                bytes += LIST_BYTES + (long) Integer.BYTES * group.length;
            }
        }
        return bytes;
    }

    /// The same request referring to a layout that the receiver has echoed before.
    public XferMetadata shortForm() {
        return new XferMetadata(
                generation,
                remoteHostname,
                remotePort,
                remoteTpSize,
                remoteTpRank,
                reqBlocks,
                WireRegions.NONE,
                remotePpSize,
                layoutId,
                extension);
    }
}
