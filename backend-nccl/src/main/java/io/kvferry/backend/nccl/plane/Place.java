// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.plane;

/// How far a transfer has come: the next block of a placement, in the order of the wire.
///
/// Threading: one thread.
final class Place {
    /// Of bytes that are shown, moved and summed before the next ones: small enough that the
    /// checksum finds them in the cache of the processor.
    private static final long MOST_SHOWN = 1 << 20;

    private final Placement placement;
    private int part;
    private int first;

    Place(Placement placement) {
        this.placement = placement;
        skipEmpty();
    }

    private void skipEmpty() {
        while (!isEnd() && first == current().count()) {
            part++;
            first = 0;
        }
    }

    /// Behind the last block.
    boolean isEnd() {
        return part == placement.parts().size();
    }

    /// Index of the part that has the next block.
    int part() {
        return part;
    }

    /// Position of the next block in its part.
    int first() {
        return first;
    }

    Placement.Part current() {
        return placement.parts().get(part);
    }

    /// Blocks from here on that are shown at once: all of one part.
    ///
    /// @param most of them
    int shown(int most) {
        long fit = Math.clamp(MOST_SHOWN / current().blockBytes(), 1, HostWire.MOST_BLOCKS);
        return (int) Math.min(Math.min(fit, most), current().count() - first);
    }

    /// Goes on by blocks of the current part.
    void advance(int blocks) {
        first += blocks;
        skipEmpty();
    }

    @Override
    public String toString() {
        return isEnd() ? "the end" : "block " + first + " of part " + part;
    }
}
