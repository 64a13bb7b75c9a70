// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import io.kvferry.backend.disk.DiskConnectorProvider;
import io.kvferry.backend.disk.store.BlockStore;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.toolkit.disk.Errno;
import io.kvferry.toolkit.disk.FileCalls;

import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/// The disk connector on a file system whose files do not open while it is held, open slowly, or
/// cannot be read for a while, or that is read-only for a while. Its worker halves share nothing
/// with its scheduler half, as in processes of their own.
public final class HeldDisk implements KvConnectorProvider {
    private static final String CHANGES =
            "createNew|openOver|publish|rename|unlink|setModified|makeFolder";

    private final KvConnectorProvider disk = new DiskConnectorProvider();
    private volatile CountDownLatch gate = new CountDownLatch(0);
    private volatile String held = "";
    private volatile boolean readOnly;
    private volatile Predicate<String> unreadable = _ -> false;
    private volatile long openNanos;
    private final AtomicLong fileCalls = new AtomicLong();

    /// Lets no worker half open a file to read, until [#release].
    public void hold() {
        hold("openRead");
    }

    /// Lets no worker half make a file, until [#release].
    void holdSaves() {
        hold("createNew");
    }

    private void hold(String call) {
        gate = new CountDownLatch(1);
        held = call;
    }

    public void release() {
        gate.countDown();
    }

    /// Whether worker halves can change nothing in the folder.
    void readOnly(boolean now) {
        readOnly = now;
    }

    /// Files, by their paths, that worker halves may not open to read.
    void unreadable(Predicate<String> paths) {
        unreadable = paths;
    }

    /// How long each file takes to open for a worker half that reads it.
    void slowReads(Duration each) {
        openNanos = each.toNanos();
    }

    /// Calls of the file system that worker halves made.
    long fileCalls() {
        return fileCalls.get();
    }

    private FileCalls calls() {
        var real = FileCalls.ofPlatform();
        return (FileCalls)
                Proxy.newProxyInstance(
                        FileCalls.class.getClassLoader(),
                        new Class<?>[] {FileCalls.class},
                        (_, method, arguments) -> {
                            fileCalls.incrementAndGet();
                            if (method.getName().equals(held)) {
                                gate.await();
                            }
                            if (method.getName().equals("openRead")) {
                                LockSupport.parkNanos(openNanos);
                                if (unreadable.test(((MemorySegment) arguments[0]).getString(0))) {
                                    return -Errno.EACCES;
                                }
                            }
                            if (readOnly && method.getName().matches(CHANGES)) {
                                return -Errno.EROFS;
                            }
                            try {
                                return method.invoke(real, arguments);
                            } catch (InvocationTargetException e) {
                                throw e.getCause();
                            }
                        });
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        return new DiskWorker(
                context,
                (config, listener) -> BlockStore.open(config, listener, calls()),
                Optional.empty());
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        return disk.openScheduler(context);
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return disk.capabilities(config, host);
    }

    @Override
    public OptionSchema options() {
        return disk.options();
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return disk.spiVersions();
    }

    @Override
    public String name() {
        return disk.name();
    }

    @Override
    public String description() {
        return disk.description();
    }
}
