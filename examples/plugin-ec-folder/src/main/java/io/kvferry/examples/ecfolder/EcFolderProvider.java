// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.ec.EcConnectorProvider;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;

/// What the host finds: the name, the options, and the two halves.
public final class EcFolderProvider implements EcConnectorProvider {
    private static final OptionSchema OPTIONS =
            OptionSchema.of(
                    Option.of(
                                    "folder",
                                    Option.Type.PATH,
                                    "where the items are kept; engines that name the same one share them")
                            .asRequired());

    @Override
    public String name() {
        return "ECFolderConnector";
    }

    @Override
    public String description() {
        return "one file per encoder output in a folder (example)";
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
    public EcSchedulerConnector openScheduler(SchedulerContext context) {
        return new EcFolderScheduler(context);
    }

    @Override
    public EcWorkerConnector openWorker(WorkerContext context) {
        return new EcFolderWorker(context);
    }
}
