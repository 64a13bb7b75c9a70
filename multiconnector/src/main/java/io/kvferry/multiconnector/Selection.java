// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.Availability;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.ConnectorCapabilities;

/// The checks between a configuration and the plugin that it names.
final class Selection {
    private Selection() {}

    static void checkAvailable(String where, Plugin plugin) {
        switch (plugin.availability()) {
            case Availability.Available _ -> {}
            case Availability.Unavailable(var reason, var remedy) ->
                    throw new KvFerryException(
                            ErrorCode.UNAVAILABLE,
                            where
                                    + ": "
                                    + plugin.name()
                                    + " cannot work here: "
                                    + reason
                                    + ". "
                                    + remedy);
        }
    }

    static OptionValues options(
            String extraKey, String instance, Plugin plugin, ConnectorConfig config) {
        return plugin.options().read(extraKey + " of " + instance, config.extra());
    }

    static void checkFit(String instance, ConnectorCapabilities capabilities, EngineInfo engine) {
        capabilities
                .misfit(engine)
                .ifPresent(why -> {
                    throw new KvFerryException(ErrorCode.INCOMPATIBLE, instance + " " + why);
                });
    }
}
