// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import static io.kvferry.tck.FreePorts.freePorts;

import io.kvferry.backend.mooncake.store.master.MasterChild;
import io.kvferry.backend.mooncake.store.remote.OwnerChild;

import org.jspecify.annotations.Nullable;

import java.io.IOException;
import java.util.Arrays;
import java.util.Objects;

/// A master and owners that report to it, each a process of its own on a port that it keeps over
/// its lives. Nothing runs until it is started.
public final class DirectoryProcesses implements AutoCloseable {
    private static final String HOST = "127.0.0.1:";

    private final @Nullable OwnerChild[] owners;
    private final long bytes;
    private final int firstPort;
    private @Nullable MasterChild master;

    /// @param bytes memory of each owner
    public DirectoryProcesses(int owners, long bytes) throws IOException {
        this.owners = new @Nullable OwnerChild[owners];
        this.bytes = bytes;
        this.firstPort = freePorts(owners + 1);
    }

    /// `host:port` of the master.
    public String master() {
        return HOST + firstPort;
    }

    /// `host:port` of an owner, which is the name of its segment too.
    public String owner(int number) {
        return HOST + (firstPort + 1 + number);
    }

    /// @param segment as [#owner] says it
    int number(String segment) {
        return Integer.parseInt(segment.substring(HOST.length())) - firstPort - 1;
    }

    boolean runs(int owner) {
        return owners[owner] != null;
    }

    long running() {
        return Arrays.stream(owners).filter(Objects::nonNull).count();
    }

    public void startMaster() throws Exception {
        master = new MasterChild(firstPort);
    }

    public void startOwner(int number) throws Exception {
        owners[number] = new OwnerChild(firstPort + 1 + number, bytes, master());
    }

    /// Starts what does not run.
    public void startAll() throws Exception {
        if (master == null) {
            startMaster();
        }
        for (int i = 0; i < owners.length; i++) {
            if (owners[i] == null) {
                startOwner(i);
            }
        }
    }

    /// As kill -9.
    public void killMaster() {
        if (master != null) {
            master.kill();
            master = null;
        }
    }

    /// As kill -9.
    public void killOwner(int number) {
        var owner = owners[number];
        if (owner != null) {
            owner.kill();
            owners[number] = null;
        }
    }

    @Override
    public void close() {
        for (int i = 0; i < owners.length; i++) {
            killOwner(i);
        }
        killMaster();
    }
}
