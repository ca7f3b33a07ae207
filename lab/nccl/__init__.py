"""The real ProcessGroupNCCL without a GPU: released builds of torch on a fake device."""
