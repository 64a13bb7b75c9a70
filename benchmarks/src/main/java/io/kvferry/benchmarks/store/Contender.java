// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.mooncake.Run;

/// Something that keeps objects, as one user of it sees it, who puts and reads [#BATCH] objects in
/// one call and waits for them.
///
/// Threading: one thread.
@SuppressWarnings("try") // an interrupt ends the benchmark
interface Contender extends AutoCloseable {
    /// Objects of one call.
    int BATCH = 32;

    /// As the table says it.
    String name();

    /// Puts objects of this size, `calls` times. Those of the call before are removed first,
    /// outside of the time that is measured.
    Run put(int size, int calls) throws Exception;

    /// Reads the objects that the last [#put] left, `calls` times, and compares their bytes.
    Run get(int size, int calls) throws Exception;

    @Override
    void close() throws Exception;
}
