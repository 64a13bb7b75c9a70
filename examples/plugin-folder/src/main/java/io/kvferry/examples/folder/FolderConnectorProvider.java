// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.folder;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;

/// What the host finds: the name, the options, and the two halves.
public final class FolderConnectorProvider implements KvConnectorProvider {
    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "folder",
                                    Option.Type.PATH,
                                    "where the blocks are kept; engines that name the same one share them")
                            .asRequired());

    @Override
    public String name() {
        return "FolderConnector";
    }

    @Override
    public String description() {
        return "one file per KV block in a folder (example)";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0); // the SPI this was compiled against
    }

    @Override
    public OptionSchema options() {
        return OPTIONS;
    }

    @Override
    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return ConnectorCapabilities.of(Feature.CONTENT_ADDRESSED, Feature.SYNC_LOAD, Feature.SAVE);
    }

    @Override
    public SchedulerConnector openScheduler(SchedulerContext context) {
        checkShape(context.engine().cache());
        return new FolderScheduler(context);
    }

    @Override
    public WorkerConnector openWorker(WorkerContext context) {
        checkShape(context.engine().cache());
        return new FolderWorker(context);
    }

    /// Features that are not claimed are refused: this connector supports one block table only.
    private static void checkShape(KvCacheSpec cache) {
        if (cache.groups().size() > 1) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "FolderConnector works with one KV cache group, not " + cache.groups().size());
        }
        var kind = cache.groups().getFirst().kind();
        if (kind != KvCacheGroup.Kind.FULL_ATTENTION) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "FolderConnector keeps whole prompts, not " + kind);
        }
    }
}
