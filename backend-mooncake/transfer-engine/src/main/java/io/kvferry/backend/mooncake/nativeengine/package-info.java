// SPDX-License-Identifier: Apache-2.0
/// The transfer engine over Mooncake's own library (`transfer_engine_c.h`), called through FFM; for
/// what pure Java cannot do, such as RDMA. Optional: the library is looked for at run time.
@NullMarked
package io.kvferry.backend.mooncake.nativeengine;

import org.jspecify.annotations.NullMarked;
