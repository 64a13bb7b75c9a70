// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.rdma;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import tools.jackson.databind.json.JsonMapper;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;

/// `kvferry rdma-config`: which RDMA devices and which GID index Mooncake should use on this host,
/// as vLLM's `recommend_mooncake_rnic_config.sh` prints them.
public final class RdmaConfigCommand implements CommandProvider {
    @Override
    public String name() {
        return "rdma-config";
    }

    @Override
    public String description() {
        return "Prints the RDMA devices and the GID index for Mooncake's libraries on this host; ends"
                + " with 1 where the choice is not clear.";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("sysfs", Option.Type.PATH, "where sysfs is mounted").withDefault("/sys"),
                Option.of(
                        "gpus",
                        Option.Type.PATH,
                        "file with a line 'index, bus id' per GPU, instead of asking nvidia-smi"),
                Option.of(
                                "machine_readable",
                                Option.Type.BOOLEAN,
                                "print the lines NAME=VALUE and nothing else")
                        .withDefault("false"));
    }

    @Override
    public int run(Context context) {
        OptionValues options = context.options();
        var host = RdmaHost.at(options.path("sysfs"));
        var index = host.gidIndex();
        if (index.isEmpty()) {
            context.err()
                    .println(
                            "No active port of an RDMA device has a GID; devices: "
                                    + host.names()
                                    + ".");
            return 1;
        }
        List<RnicPlan.Gpu> gpus =
                options.has("gpus")
                        ? Gpus.parse(read(options.path("gpus")), host)
                        : Gpus.ofThisMachine(host);
        var plan = RnicPlan.of(gpus, host.devices());
        String active = host.activeDevices(index.getAsInt());
        var settings = new LinkedHashMap<String, String>();
        settings.put(RdmaEnvironment.GID_INDEX, Integer.toString(index.getAsInt()));
        settings.put(RdmaEnvironment.DEVICE, gpus.isEmpty() ? active : plan.list());
        settings.put(RdmaEnvironment.OWNER_DEVICE, active);
        var out = context.out();
        if (context.json()) {
            var json = JsonMapper.shared().createObjectNode();
            settings.forEach(json::put);
            var lines = json.putArray("gpus");
            plan.lines().forEach(line -> lines.add(line.toString()));
            out.println(json);
        } else {
            if (!options.bool("machine_readable")) {
                plan.lines().forEach(line -> out.println("# " + line));
            }
            settings.forEach((name, value) -> out.println(name + "=" + value));
        }
        if (!plan.clear()) {
            context.err()
                    .println("Not clear which device belongs to which GPU; see the lines above.");
            return 1;
        }
        return 0;
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            throw new KvFerryException(ErrorCode.BAD_CONFIG, "cannot read " + file + ": " + e, e);
        }
    }
}
