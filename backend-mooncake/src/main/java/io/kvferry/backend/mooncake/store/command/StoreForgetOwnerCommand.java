// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.command;

import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.master.MasterView.Standing;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import tools.jackson.databind.json.JsonMapper;

import java.util.Locale;

/// `kvferry store forget-owner`: says that an owner is gone for good.
public final class StoreForgetOwnerCommand extends StoreTool {
    @Override
    public String name() {
        return "store forget-owner";
    }

    @Override
    public String description() {
        return "Tells the master of several owners that one of them is gone for good. It is not"
                + " listed any more, whatever it reports, and removals (the reset of a cache)"
                + " succeed without it.";
    }

    @Override
    public Arguments arguments() {
        return new Arguments("OWNER", 1, 1, "host:port of the owner");
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("store", Option.Type.STRING, "master://host:port of the directory")
                        .withDefault("master://127.0.0.1:50051"),
                Option.of(
                                "undo",
                                Option.Type.BOOLEAN,
                                "the owner may come back: empty its disk tier before, and start it"
                                        + " anew afterwards")
                        .withDefault("false"),
                secretFile(),
                insecure());
    }

    @Override
    public int run(Context context) {
        boolean undo = context.options().bool("undo");
        String owner = context.arguments().getFirst();
        Standing before = MasterView.forget(config(context.options()), owner, !undo);
        print(
                context,
                "owner " + owner + (undo ? " may come back" : forgotten(before)),
                JsonMapper.shared()
                        .createObjectNode()
                        .put("owner", owner)
                        .put("before", before.name().toLowerCase(Locale.ROOT))
                        .put("forgotten", !undo));
        return 0;
    }

    private static String forgotten(Standing before) {
        return switch (before) {
            case LISTED -> " is forgotten, it was listed until now";
            case FORGOTTEN -> " was forgotten already";
            case UNKNOWN ->
                    " is forgotten, but the master did not list it: check that the address is right,"
                            + " unless this owner had ended";
        };
    }
}
