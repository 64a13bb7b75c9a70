// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.store;

import io.kvferry.benchmarks.mooncake.Run;

import java.io.IOException;

/// Real Mooncake's store: the memory in one process, its user in another, over TCP as it has no
/// other way without an RDMA device.
@SuppressWarnings("try") // an interrupt ends the benchmark
final class MooncakeContender implements Contender {
    static final String NAME = "Mooncake";

    private final MooncakeStore store;
    private final MooncakeStore.Answerer user;

    /// @param store is closed with this
    /// @param largest object
    MooncakeContender(MooncakeStore store, int largest) throws IOException, InterruptedException {
        this.store = store;
        this.user = store.user(2L * BATCH * largest);
    }

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public Run put(int size, int calls) throws IOException {
        return run("put", size, calls);
    }

    @Override
    public Run get(int size, int calls) throws IOException {
        return run("get", size, calls);
    }

    private Run run(String what, int size, int calls) throws IOException {
        long before = store.cpuNanos();
        long[] nanos = user.ask(what + " " + size + " " + BATCH + " " + calls);
        return new Run(
                (double) size * BATCH * calls, nanos[0], nanos[1] + store.cpuNanos() - before);
    }

    @Override
    public void close() throws IOException, InterruptedException {
        try {
            user.close();
        } finally {
            store.close();
        }
    }
}
