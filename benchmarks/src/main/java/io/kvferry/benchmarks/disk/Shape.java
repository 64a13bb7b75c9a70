// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.disk;

/// Blocks of one size, in files of their own or several to a file, and where they lie in memory.
///
/// @param block bytes
/// @param run blocks in one file, in which they lie layer by layer
/// @param ranges of memory that make up a block, each in a region of its own: its layers
/// @param scattered whether the blocks of a file lie far from each other in the regions, and not
///   one behind the other
public record Shape(int block, int run, int ranges, boolean scattered) {
    /// Greater than any number of blocks, so that its multiples give each block another place.
    private static final long PRIME = 2_654_435_761L;

    /// Memory in one piece, as the files.
    public static Shape ofFile(int bytes) {
        return new Shape(bytes, 1, 1, false);
    }

    Shape in(int ranges, boolean scattered) {
        return new Shape(block, run, ranges, scattered);
    }

    int fileBytes() {
        return Math.multiplyExact(block, run);
    }

    /// Whether so many blocks are where they should be: of some numbers the multiples of the prime
    /// are neighbours again.
    boolean scatters(int blocks) {
        if (!scattered || blocks == 0) {
            return true;
        }
        long step = PRIME % blocks;
        return Math.min(step, blocks - step) > 1;
    }

    /// Where in the regions a block of so many lies.
    int place(int index, int blocks) {
        return scattered ? (int) (index * PRIME % blocks) : index;
    }
}
