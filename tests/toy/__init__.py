"""A toy accelerator, so that what whynan does on a device can be tested where there is none.

    from tests.toy import toy
    toy.load()                        # builds it once for this torch, in a temporary folder
    x = torch.ones(3, device="toy")   # "toy:0" or "toy:1"
    with toy.counting() as counts:    # kernels, copies, synchronisations
        x.sum().item()

It stands where a vendor's back end would (`PrivateUse1`). What is as on CUDA:

* backward runs in the device's own thread, which has none of the program's frames;
* it has generators of its own, streams, events, pinned memory, autocast, two devices;
* tensors of the CPU do not mix with its own, and NumPy does not see them;
* waiting is counted where CUDA waits: `item()`, `tolist()`, `cpu()`, `nonzero()`, a mask as an index, and a copy
  from the host that is not `non_blocking`; a list of tensors (`_foreach_norm`) is one kernel;
* a `non_blocking` copy to pinned memory arrives when an event recorded after it is reached, `toy.lag` kernels later,
  or when somebody waits. Who reads it before reads zeros.

`toy.py` is its Python side, `toy.cpp` the rest, `script.py` runs a program with it as the default device.
"""
