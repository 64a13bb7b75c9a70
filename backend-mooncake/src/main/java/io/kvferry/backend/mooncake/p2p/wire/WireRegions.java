// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.wire;

import java.util.List;

/// The registered regions of a decoder as its request lists them: parallel columns, of which the
/// optional ones are empty when the message lacks them. Columns may disagree in length; [#problem]
/// says so.
///
/// @param baseAddresses unsigned
/// @param blockLengths distance in bytes from one block to the next
/// @param kvBlockLengths bytes to move per block; equal to `blockLengths` in messages that lack
///   them
/// @param groups KV cache group; -1 when several share the region
/// @param sharedGroups the groups that share it
/// @param rowOffsets position in a packed row; -1 for a region of its own
@SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
public record WireRegions(
        long[] baseAddresses,
        long[] blockLengths,
        long[] kvBlockLengths,
        List<String> layerNames,
        int[] layerIndices,
        int[] groups,
        List<int[]> sharedGroups,
        long[] rowOffsets) {
    /// No region: what the short form of a request carries.
    public static final WireRegions NONE =
            new WireRegions(
                    new long[0],
                    new long[0],
                    new long[0],
                    List.of(),
                    new int[0],
                    new int[0],
                    List.of(),
                    new long[0]);

    public WireRegions {
        layerNames = List.copyOf(layerNames);
        sharedGroups = List.copyOf(sharedGroups);
    }

    public int size() {
        return baseAddresses.length;
    }

    /// Why these columns describe no set of regions in a message of `generation`; empty when they
    /// do. From G5 on names and indices are mandatory, as vLLM 0.33.0 insists; groups, shared
    /// groups and row offsets may be missing as a whole.
    public String problem(Generation generation) {
        int n = size();
        int lengths = generation == Generation.G2 ? 0 : n;
        int names = generation.namesLayers() ? n : 0;
        boolean fits =
                blockLengths.length == lengths
                        && kvBlockLengths.length == lengths
                        && layerNames.size() == names
                        && (layerIndices.length == names
                                || (layerIndices.length == 0 && !generation.tellsStrides()))
                        && (groups.length == n || groups.length == 0)
                        && (sharedGroups.size() == n || sharedGroups.isEmpty())
                        && (rowOffsets.length == n || rowOffsets.length == 0);
        return fits
                ? ""
                : "Mooncake transfer regions require matching metadata lengths, got base_addr="
                        + n
                        + ", block_lens="
                        + blockLengths.length
                        + ", kv_block_lens="
                        + kvBlockLengths.length
                        + ", layer_names="
                        + layerNames.size()
                        + ", layer_indices="
                        + layerIndices.length
                        + ", group_indices="
                        + groups.length
                        + ", shared_group_ids="
                        + sharedGroups.size()
                        + ", row_offsets="
                        + rowOffsets.length;
    }
}
