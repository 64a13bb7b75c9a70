// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.copy;

import io.kvferry.backend.mooncake.te.Ranges;

import java.util.List;

/// How one prefiller rank copies a block into one decoder rank's memory: for each layer, from where
/// to where.
///
/// @param copies one per layer that has something to copy
/// @param groups number of KV cache groups on both sides
/// @param exchanges how many decoder workers fetch each transfer from this rank
public record CopyPlan(List<RegionCopy> copies, int groups, int exchanges) {
    public CopyPlan {
        copies = List.copyOf(copies);
    }

    /// One layer. Addresses are of block 0; lengths and strides in bytes.
    ///
    /// @param rows pieces that a block is copied in: 1, or one per token where the heads of a token
    ///   lie together and the two sides hold different ones
    /// @param localRow distance from one piece to the next
    /// @param length of one piece
    public record RegionCopy(
            int group,
            int blocks,
            long localBase,
            long localStride,
            long localOffset,
            long remoteBase,
            long remoteStride,
            long remoteOffset,
            int rows,
            long localRow,
            long remoteRow,
            long length) {
        boolean wholeBlocks() {
            return rows == 1
                    && localOffset == 0
                    && remoteOffset == 0
                    && length == localStride
                    && length == remoteStride;
        }

        /// Copies `run` adjacent blocks, of which only whole ones may be more than one.
        private void append(int from, int to, int run, Taker out) {
            long local = localBase + from * localStride + localOffset;
            long remote = remoteBase + to * remoteStride + remoteOffset;
            for (int row = 0; row < rows; row++) {
                out.take(local + row * localRow, remote + row * remoteRow, run * length);
            }
        }
    }

    /// Appends the ranges that copy `local` blocks onto `remote` ones, pairwise, in every layer of
    /// their group.
    ///
    /// Runs of blocks that are adjacent on both sides become one range where nothing lies between
    /// the blocks. Nothing is allocated per block but room in `out`.
    ///
    /// @param local block ids per group, at least as many as remote: the LAST ones are taken, since
    ///   a decoder asks for the tail that it lacks
    public void append(List<int[]> local, List<int[]> remote, Ranges out) {
        append(local, remote, (Taker) out::add);
    }

    /// Takes ranges.
    @FunctionalInterface
    public interface Taker {
        void take(long local, long remote, long bytes);
    }

    /// As [#append(List, List, Ranges)], for whoever has the remote side.
    public void append(List<int[]> local, List<int[]> remote, Taker out) {
        for (var copy : copies) {
            int[] from = local.get(copy.group());
            int[] to = remote.get(copy.group());
            int skip = from.length - to.length;
            for (int i = 0; i < to.length; ) {
                int run = copy.wholeBlocks() ? run(from, skip, to, i) : 1;
                copy.append(from[skip + i], to[i], run, out);
                i += run;
            }
        }
    }

    private static int run(int[] from, int skip, int[] to, int start) {
        int next = start + 1;
        while (next < to.length
                && to[next] - to[next - 1] == 1
                && from[skip + next] - from[skip + next - 1] == 1) {
            next++;
        }
        return next - start;
    }

    /// Why the decoder's block lists do not fit the prefiller's; empty when they do.
    public String mismatch(List<int[]> local, List<int[]> remote) {
        if (local.size() != remote.size() || local.size() != groups) {
            return "KV group count mismatch: P has "
                    + local.size()
                    + ", D asks for "
                    + remote.size();
        }
        for (int group = 0; group < local.size(); group++) {
            if (local.get(group).length < remote.get(group).length) {
                return "P num blocks less than D in group "
                        + group
                        + ": "
                        + local.get(group).length
                        + " < "
                        + remote.get(group).length;
            }
        }
        for (var copy : copies) {
            for (int id : local.get(copy.group())) {
                if (id < 0 || id >= copy.blocks()) {
                    return "block id " + id + " of P is out of 0.." + (copy.blocks() - 1);
                }
            }
        }
        return "";
    }
}
